/* Two ranks add up four numbers each, through libnccl.so.2 and nothing else.
 *
 *   gcc -I include -o two_ranks examples/c/two_ranks.c target/release/libnccl.so.2
 *   export LD_LIBRARY_PATH=target/release RINGSMITH_DEVICE=cpu
 *   ./two_ranks 0 /tmp/id & ./two_ranks 1 /tmp/id
 *
 * Rank 0 makes the id and leaves it in a file, rank 1 takes it from there. NCCL_DEBUG=INFO shows the phases of
 * initialisation. Buffers are host memory: RINGSMITH_DEVICE=cpu says so. */
#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends the program with what the library says, if a call failed. */
static void check(ncclResult_t result) {
    if (result == ncclSuccess) return;
    fprintf(stderr, "%s\n", ncclGetLastError(NULL));
    exit(1);
}

/* One rank makes an id, the others receive it: here through a file that appears as a whole. */
static ncclUniqueId exchange(int rank, const char *path) {
    ncclUniqueId id;
    char draft[4096];
    if (rank == 0) {
        check(ncclGetUniqueId(&id));
        snprintf(draft, sizeof draft, "%s.draft", path);
        FILE *file = fopen(draft, "wb");
        if (file == NULL || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 || rename(draft, path) != 0) {
            perror(path);
            exit(2);
        }
        return id;
    }
    /* A minute for rank 0 to begin. */
    for (int tries = 0; tries < 6000; tries++) {
        FILE *file = fopen(path, "rb");
        if (file != NULL) {
            size_t read = fread(&id, sizeof id, 1, file);
            fclose(file);
            if (read == 1) return id;
        }
        usleep(10000);
    }
    fprintf(stderr, "%s: rank 0 has left no id there\n", path);
    exit(2);
}

int main(int count, char **arguments) {
    if (count != 3 || (strcmp(arguments[1], "0") != 0 && strcmp(arguments[1], "1") != 0)) {
        fprintf(stderr, "usage: %s RANK FILE, with ranks 0 and 1 and a new file for both\n", arguments[0]);
        return 2;
    }
    int rank = atoi(arguments[1]);
    ncclComm_t comm;
    check(ncclCommInitRank(&comm, 2, exchange(rank, arguments[2]), rank));

    float mine[4] = {1, 2, 3, 4}, sum[4];
    for (int at = 0; at < 4; at++) mine[at] *= (float)(rank + 1);
    check(ncclAllReduce(mine, sum, 4, ncclFloat, ncclSum, comm, NULL));
    printf("rank %d: %g %g %g %g\n", rank, sum[0], sum[1], sum[2], sum[3]);

    check(ncclCommFinalize(comm));
    check(ncclCommDestroy(comm));
    return 0;
}
