/* A mistake that looks like the other example: each process makes an id of its own.
 *
 *   ./two_ids 0 & ./two_ids 1
 *
 * An id is where ranks meet, so each waits where nobody else comes. Both end at the deadline of initialisation
 * (RINGSMITH_INIT_TIMEOUT_S), and say which rank of which id waits alone: two ids, so two places.
 * two_ranks.c does it right: one rank makes the id, the others receive it. */
#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    int rank = count > 1 ? atoi(arguments[1]) : 0;
    ncclUniqueId id;
    ncclComm_t comm;
    /* The mistake: this line belongs to rank 0 alone. */
    ncclResult_t result = ncclGetUniqueId(&id);
    if (result == ncclSuccess) result = ncclCommInitRank(&comm, 2, id, rank);
    if (result != ncclSuccess) {
        fprintf(stderr, "%s\n", ncclGetLastError(NULL));
        return 1;
    }
    return 0;
}
