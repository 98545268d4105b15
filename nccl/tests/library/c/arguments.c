/* Wrong arguments and wrong use: the documented result code, and a last error that says what to do. Nothing
 * hangs and nothing crashes; the communicator works afterwards, unless it says that it does not. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENT(text, call) REFUSED(ncclInvalidArgument, text, call)

static void wrong_initialisation(const struct job *job) {
    ncclComm_t comm = (ncclComm_t)job;
    ncclUniqueId id, garbage;
    memset(&garbage, 0x33, sizeof garbage);
    OK(ncclGetUniqueId(&id));
    ARGUMENT("uniqueId is null", ncclGetUniqueId(NULL));
    ARGUMENT("comm is null", ncclCommInitRank(NULL, 1, id, 0));
    ARGUMENT("nranks is 0", ncclCommInitRank(&comm, 0, id, 0));
    CHECK(comm == NULL);
    ARGUMENT("nranks is -3", ncclCommInitRank(&comm, -3, id, 0));
    ARGUMENT("rank 4 of 4", ncclCommInitRank(&comm, 4, id, 4));
    ARGUMENT("rank -1 of 4", ncclCommInitRank(&comm, 4, id, -1));
    ARGUMENT("", ncclCommInitRank(&comm, 1, garbage, 0));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    memset(&config, 0, sizeof config);
    ARGUMENT("NCCL_CONFIG_INITIALIZER", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    ARGUMENT("blocking is 2", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 8, config.maxCTAs = 4;
    ARGUMENT("minCTAs is 8", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = 0;
    ARGUMENT("maxCTAs is 0", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.netName = "carrier pigeon";
    REFUSED(ncclInvalidUsage, "carrier pigeon", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    ARGUMENT("nId is 0", ncclCommInitRankScalable(&comm, 1, 0, 0, &id, NULL));
    ARGUMENT("nId is 2", ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL));
    ARGUMENT("commIds is null", ncclCommInitRankScalable(&comm, 1, 0, 1, NULL, NULL));
    int twice[2] = {1, 1}, negative[1] = {-1};
    ncclComm_t comms[2];
    ARGUMENT("0 ranks", ncclCommInitAll(comms, 0, NULL));
    ARGUMENT("an array of 1 to", ncclCommInitAll(NULL, 2, NULL));
    ARGUMENT("2147483647 ranks", ncclCommInitAll(comms, INT_MAX, NULL));
    ARGUMENT("devlist[1] is 1", ncclCommInitAll(comms, 2, twice));
    ARGUMENT("devlist[0] is -1", ncclCommInitAll(comms, 1, negative));
    /* The id that was never joined may still be. */
    OK(ncclCommInitRank(&comm, 1, id, 0));
    OK(ncclCommDestroy(comm));
}

static void null_handles(void) {
    int number;
    uint64_t value;
    void *place;
    ncclResult_t state;
    ncclComm_t part;
    ncclWindow_t window;
    ncclRedOp_t op;
    float data = 1;
    ncclWaitSignalDesc_t signals = {1, 0, 0, 0};
    const char *null = "communicator is null";
    ARGUMENT(null, ncclCommFinalize(NULL));
    ARGUMENT(null, ncclCommDestroy(NULL));
    ARGUMENT(null, ncclCommAbort(NULL));
    ARGUMENT(null, ncclCommRevoke(NULL, 0));
    ARGUMENT(null, ncclCommSplit(NULL, 0, 0, &part, NULL));
    ARGUMENT(null, ncclCommShrink(NULL, &number, 1, &part, NULL, 0));
    ARGUMENT(null, ncclCommGetAsyncError(NULL, &state));
    ARGUMENT(null, ncclCommCount(NULL, &number));
    ARGUMENT(null, ncclCommCuDevice(NULL, &number));
    ARGUMENT(null, ncclCommUserRank(NULL, &number));
    ARGUMENT(null, ncclCommMemStats(NULL, ncclStatGpuMemTotal, &value));
    ARGUMENT(null, ncclCommSuspend(NULL, NCCL_SUSPEND_MEM));
    ARGUMENT(null, ncclCommResume(NULL));
    ARGUMENT(null, ncclCommRegister(NULL, &data, sizeof data, &place));
    ARGUMENT(null, ncclCommDeregister(NULL, &data));
    ARGUMENT(null, ncclCommWindowRegister(NULL, &data, sizeof data, &window, 0));
    ARGUMENT(null, ncclCommWindowDeregister(NULL, (ncclWindow_t)&data));
    ARGUMENT(null, ncclWinGetUserPtr(NULL, (ncclWindow_t)&data, &place));
    ARGUMENT(null, ncclRedOpCreatePreMulSum(&op, &data, ncclFloat, ncclScalarHostImmediate, NULL));
    ARGUMENT(null, ncclRedOpDestroy((ncclRedOp_t)5, NULL));
    ARGUMENT(null, ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, NULL, NULL));
    ARGUMENT(null, ncclReduce(&data, &data, 1, ncclFloat, ncclSum, 0, NULL, NULL));
    ARGUMENT(null, ncclBroadcast(&data, &data, 1, ncclFloat, 0, NULL, NULL));
    ARGUMENT(null, ncclBcast(&data, 1, ncclFloat, 0, NULL, NULL));
    ARGUMENT(null, ncclReduceScatter(&data, &data, 1, ncclFloat, ncclSum, NULL, NULL));
    ARGUMENT(null, ncclAllGather(&data, &data, 1, ncclFloat, NULL, NULL));
    ARGUMENT(null, ncclAlltoAll(&data, &data, 1, ncclFloat, NULL, NULL));
    ARGUMENT(null, ncclGather(&data, &data, 1, ncclFloat, 0, NULL, NULL));
    ARGUMENT(null, ncclScatter(&data, &data, 1, ncclFloat, 0, NULL, NULL));
    ARGUMENT(null, ncclSend(&data, 1, ncclFloat, 0, NULL, NULL));
    ARGUMENT(null, ncclRecv(&data, 1, ncclFloat, 0, NULL, NULL));
    /* What is not there says so, whatever it is given. */
    const char *missing = "not there in this version";
    REFUSED(ncclInvalidUsage, missing, ncclCommGrow(NULL, 1, NULL, 0, &part, NULL));
    REFUSED(ncclInvalidUsage, missing, ncclCommGetUniqueId(NULL, NULL));
    REFUSED(ncclInvalidUsage, missing, ncclPutSignal(&data, 1, ncclFloat, 0, NULL, 0, 0, 0, 0, NULL, NULL));
    REFUSED(ncclInvalidUsage, missing, ncclSignal(0, 0, 0, 0, NULL, NULL));
    REFUSED(ncclInvalidUsage, missing, ncclWaitSignal(1, &signals, NULL, NULL));
}

static void wrong_places(ncclComm_t comm) {
    float data[4] = {1, 2, 3, 4};
    void *handle;
    ncclWindow_t window;
    ncclRedOp_t op;
    ncclComm_t part;
    uint64_t value;
    ARGUMENT("count is null", ncclCommCount(comm, NULL));
    ARGUMENT("device is null", ncclCommCuDevice(comm, NULL));
    ARGUMENT("rank is null", ncclCommUserRank(comm, NULL));
    ARGUMENT("asyncError is null", ncclCommGetAsyncError(comm, NULL));
    ARGUMENT("value is null", ncclCommMemStats(comm, ncclStatGpuMemTotal, NULL));
    ARGUMENT("stat is 17", ncclCommMemStats(comm, (ncclCommMemStat_t)17, &value));
    ARGUMENT("newcomm is null", ncclCommSplit(comm, 0, 0, NULL, NULL));
    ncclConfig_t blank;
    memset(&blank, 0, sizeof blank);
    ARGUMENT("NCCL_CONFIG_INITIALIZER", ncclCommSplit(comm, 0, 0, &part, &blank));
    ARGUMENT("version is null", ncclGetVersion(NULL));
    ARGUMENT("give an address", ncclCommRegister(comm, NULL, 4, &handle));
    ARGUMENT("give an address", ncclCommRegister(comm, data, 0, &handle));
    ARGUMENT("give an address", ncclCommRegister(comm, data, 4, NULL));
    ARGUMENT("is no registered buffer", ncclCommDeregister(comm, data));
    ARGUMENT("a window is", ncclCommWindowRegister(comm, NULL, 4, &window, NCCL_WIN_DEFAULT));
    ARGUMENT("a window is", ncclCommWindowRegister(comm, data, 4, &window, 1 << 20));
    ARGUMENT("a window is", ncclCommWindowRegister(comm, data, 4, &window, -1));
    ARGUMENT("is no window", ncclCommWindowDeregister(comm, (ncclWindow_t)data));
    ARGUMENT("is no window", ncclWinGetUserPtr(comm, (ncclWindow_t)data, &handle));
    ARGUMENT("ptr is null", ncclMemAlloc(NULL, 4));
    ARGUMENT("is no memory of ncclMemAlloc", ncclMemFree(data));
    ARGUMENT("op or scalar is null", ncclRedOpCreatePreMulSum(NULL, data, ncclFloat, ncclScalarHostImmediate, comm));
    ARGUMENT("op or scalar is null", ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm));
    ARGUMENT("99 is no ncclDataType_t", ncclRedOpCreatePreMulSum(&op, data, (ncclDataType_t)99, ncclScalarHostImmediate, comm));
    ARGUMENT("residence is 3", ncclRedOpCreatePreMulSum(&op, data, ncclFloat, (ncclScalarResidence_t)3, comm));
    ARGUMENT("is no operation", ncclRedOpDestroy(ncclSum, comm));
    ARGUMENT("is no operation", ncclRedOpDestroy(ncclMaxRedOp, comm));
}

static void wrong_calls(const struct job *job, ncclComm_t comm) {
    float data[64] = {0};
    int world = job->world;
    char who[32];
    snprintf(who, sizeof who, "rank %d of %d", job->rank, world);
    ARGUMENT("12 is no ncclDataType_t", ncclAllReduce(data, data, 1, ncclNumTypes, ncclSum, comm, NULL));
    ARGUMENT("-1 is no ncclDataType_t", ncclAllGather(data, data, 1, (ncclDataType_t)-1, comm, NULL));
    ARGUMENT("5 is no ncclRedOp_t", ncclAllReduce(data, data, 1, ncclFloat, ncclNumOps, comm, NULL));
    ARGUMENT("-1 is no ncclRedOp_t", ncclReduce(data, data, 1, ncclFloat, (ncclRedOp_t)-1, 0, comm, NULL));
    ARGUMENT("is no ncclRedOp_t", ncclReduceScatter(data, data, 1, ncclFloat, ncclMaxRedOp, comm, NULL));
    ARGUMENT("root -1 is no rank", ncclReduce(data, data, 1, ncclFloat, ncclSum, -1, comm, NULL));
    ARGUMENT("is no rank", ncclBroadcast(data, data, 1, ncclFloat, world, comm, NULL));
    ARGUMENT("is no rank", ncclBcast(data, 1, ncclFloat, world + 5, comm, NULL));
    ARGUMENT("is no rank", ncclGather(data, data, 1, ncclFloat, world, comm, NULL));
    ARGUMENT("is no rank", ncclScatter(data, data, 1, ncclFloat, -7, comm, NULL));
    ARGUMENT("peer -1 is no rank", ncclSend(data, 1, ncclFloat, -1, comm, NULL));
    ARGUMENT("is no rank", ncclRecv(data, 1, ncclFloat, world, comm, NULL));
    SAYS(ncclGetLastError(NULL), "ncclRecv");
    SAYS(ncclGetLastError(comm), "is no rank");
    SAYS(ncclGetLastError(comm), who);
    ARGUMENT("send buffer is null", ncclAllReduce(NULL, data, 3, ncclFloat, ncclSum, comm, NULL));
    ARGUMENT("receive buffer is null", ncclAllReduce(data, NULL, 3, ncclFloat, ncclSum, comm, NULL));
    ARGUMENT("needs 12 bytes", ncclBcast(NULL, 3, ncclFloat, 0, comm, NULL));
    ARGUMENT("buffer is null", ncclSend(NULL, 3, ncclFloat, 0, comm, NULL));
    ARGUMENT("buffer is null", ncclRecv(NULL, 3, ncclFloat, 0, comm, NULL));
    ARGUMENT("", ncclAllReduce(data, data, SIZE_MAX, ncclFloat, ncclSum, comm, NULL));
    ARGUMENT("", ncclAllGather(data, data + 1, SIZE_MAX / 4, ncclFloat, comm, NULL));
    ARGUMENT("more than memory can hold", ncclSend(data, SIZE_MAX / 2, ncclFloat, 0, comm, NULL));
    ARGUMENT("overlap in part", ncclAllReduce(data, data + 1, 8, ncclFloat, ncclSum, comm, NULL));
    ARGUMENT("overlap in part", ncclAlltoAll(data + 2, data, 8, ncclFloat, comm, NULL));
    ARGUMENT("overlap in part", ncclReduceScatter(data, data + 8 * job->rank + 1, 8, ncclFloat, ncclSum, comm, NULL));
    ARGUMENT("overlap in part", ncclAllGather(data + 8 * job->rank + 1, data, 8, ncclFloat, comm, NULL));
}

void wrong_arguments(const struct job *job) {
    wrong_initialisation(job);
    null_handles();
    ncclComm_t comm = join(job, "arguments");
    wrong_places(comm);
    wrong_calls(job, comm);
    /* After all that the communicator is as good as new. */
    int32_t sum = 1;
    OK(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    EQUAL(sum, job->world);
    OK(ncclCommDestroy(comm));
}

void different_counts(const struct job *job) {
    /* Ranks that do not make the same call. Where sizes travel with messages the difference is told; else a
     * deadline ends what would wait for ever. */
    CHECK(setenv("RINGSMITH_TIMEOUT_S", "3", 1) == 0);
    ncclComm_t comm = join(job, "counts");
    enum { COUNT = 1 << 20 };
    char *data = calloc(COUNT, 1);
    char who[32];
    snprintf(who, sizeof who, "rank %d", job->rank);
    if (job->world > 1) {
        /* Rank 0 alone has something to add. */
        ncclResult_t code = ncclAllReduce(data, data, job->rank == 0 ? COUNT : 0, ncclInt8, ncclSum, comm, NULL);
        meet(job, "called");
        if (job->rank == 0) {
            CHECK(code == ncclRemoteError || code == ncclInvalidUsage);
            SAYS(ncclGetLastError(NULL), who);
            SAYS(ncclGetLastError(NULL), "all_reduce number 0");
            SAYS(ncclGetLastError(NULL), code == ncclRemoteError ? "RINGSMITH_TIMEOUT_S" : "made different calls");
        }
        /* The communicator is broken on every rank, and says so at once. */
        ncclResult_t state = ncclSuccess;
        while (state == ncclSuccess) OK(ncclCommGetAsyncError(comm, &state));
        EQUAL(state, ncclRemoteError);
        REFUSED(ncclRemoteError, who, ncclAllReduce(data, data, 1, ncclInt8, ncclSum, comm, NULL));
        SAYS(ncclGetLastError(comm), "not begun");
        OK(ncclCommAbort(comm));
        /* A message and its receiver of another size. */
        comm = join(job, "sizes");
        if (job->rank == 0) {
            code = ncclSend(data, 100, ncclInt8, 1, comm, NULL);
            CHECK(code == ncclSuccess || code == ncclRemoteError);
        }
        if (job->rank == 1) {
            code = ncclRecv(data, 64, ncclInt8, 0, comm, NULL);
            CHECK(code == ncclInvalidUsage || code == ncclRemoteError || code == ncclInvalidArgument);
            SAYS(ncclGetLastError(NULL), "100 bytes");
            SAYS(ncclGetLastError(NULL), "rank 0");
        }
        meet(job, "received");
        OK(ncclCommAbort(comm));
    } else {
        OK(ncclCommDestroy(comm));
    }
    free(data);
}

void pointers(const struct job *job) {
    CHECK(setenv("NCCL_CHECK_POINTERS", "1", 1) == 0);
    ncclComm_t comm = join(job, "pointers");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *good = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(good != MAP_FAILED);
    /* The third page is read-only, the fourth is gone. */
    CHECK(mprotect(good + 2 * page, page, PROT_READ) == 0);
    CHECK(munmap(good + 3 * page, page) == 0);
    char *readable = good + 2 * page, *gone = good + 3 * page;
    OK(ncclAllReduce(good, good + page, page, ncclInt8, ncclSum, comm, NULL));
    OK(ncclAllReduce(readable, good, page, ncclInt8, ncclSum, comm, NULL));
    ARGUMENT("receive buffer", ncclAllReduce(good, readable, page, ncclInt8, ncclSum, comm, NULL));
    ARGUMENT("send buffer", ncclAllReduce(gone, good, 1, ncclInt8, ncclSum, comm, NULL));
    ARGUMENT("send buffer", ncclAllReduce(readable, good, page + 1, ncclInt8, ncclSum, comm, NULL));
    ARGUMENT("cannot be read", ncclSend(gone, 1, ncclInt8, 0, comm, NULL));
    ARGUMENT("cannot be written", ncclRecv(readable, 1, ncclInt8, 0, comm, NULL));
    ARGUMENT("cannot be read", ncclAllReduce((void *)64, good, 1, ncclInt8, ncclSum, comm, NULL));
    OK(ncclAllReduce(good, good, 2 * page, ncclInt8, ncclSum, comm, NULL));
    OK(ncclCommDestroy(comm));
}

void fork_after_init(const struct job *job) {
    ncclComm_t comm = join(job, "fork");
    float data = 1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        REFUSED(ncclInvalidUsage, "forked from it", ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, NULL));
        /* What the child lets go stays with the parent. */
        OK(ncclCommDestroy(comm));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, NULL));
    CHECK(data == (float)job->world);
    OK(ncclCommDestroy(comm));
}

enum { ROUNDS = 200 };

static void *add_up(void *comm) {
    for (int round = 0; round < ROUNDS; round++) {
        int32_t one = 1, sum = 0;
        int world;
        OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, NULL));
        OK(ncclCommCount(comm, &world));
        EQUAL(sum, world);
    }
    return NULL;
}

void two_threads(const struct job *job) {
    /* Calls of two threads on one communicator run one after the other. */
    ncclComm_t comm = join(job, "threads");
    pthread_t other;
    CHECK(pthread_create(&other, NULL, add_up, comm) == 0);
    add_up(comm);
    CHECK(pthread_join(other, NULL) == 0);
    OK(ncclCommDestroy(comm));
}
