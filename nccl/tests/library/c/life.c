/* Communicators from their ids to their ends: initialisation, division, farewell, abortion. */
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* That a communicator works: the sum of all ranks. */
static void check_works(ncclComm_t comm) {
    int rank, world;
    OK(ncclCommUserRank(comm, &rank));
    OK(ncclCommCount(comm, &world));
    int64_t sum = rank + 1;
    OK(ncclAllReduce(&sum, &sum, 1, ncclInt64, ncclSum, comm, NULL));
    EQUAL(sum, world * (world + 1) / 2);
}

static void check_place(ncclComm_t comm, int rank, int world) {
    int actual;
    OK(ncclCommUserRank(comm, &actual));
    EQUAL(actual, rank);
    OK(pncclCommUserRank(comm, &actual));
    EQUAL(actual, rank);
    OK(ncclCommCount(comm, &actual));
    EQUAL(actual, world);
    OK(pncclCommCount(comm, &actual));
    EQUAL(actual, world);
    OK(ncclCommCuDevice(comm, &actual));
    EQUAL(actual, 0);
}

void initialisation(const struct job *job) {
    int world = job->world, rank = job->rank;
    ncclComm_t comm = join(job, "plain");
    check_place(comm, rank, world);
    check_works(comm);
    OK(ncclCommDestroy(comm));
    /* A configuration, and beginnings of it, as programs have them that were compiled with an older header. */
    const size_t sizes[] = {20, offsetof(ncclConfig_t, netName), offsetof(ncclConfig_t, commName), sizeof(ncclConfig_t)};
    const char *names[] = {"size_a", "size_b", "size_c", "size_d"};
    for (int at = 0; at < 4; at++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        config.size = sizes[at];
        if (at > 0) config.minCTAs = 1, config.maxCTAs = 4;
        if (at > 1) config.netName = "Socket";
        if (at > 2) config.commName = "tensors", config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY, config.graphUsageMode = 1;
        OK(pncclCommInitRankConfig(&comm, world, share_id(job, names[at]), rank, &config));
        check_works(comm);
        OK(ncclCommDestroy(comm));
    }
    /* A configuration of a later version, which is longer than ours. */
    struct { ncclConfig_t known; int later[32]; } longer = {NCCL_CONFIG_INITIALIZER, {0}};
    for (int at = 0; at < 32; at++) longer.later[at] = NCCL_CONFIG_UNDEF_INT;
    longer.known.size = sizeof longer;
    longer.known.version = 29999;
    OK(ncclCommInitRankConfig(&comm, world, share_id(job, "longer"), rank, &longer.known));
    check_works(comm);
    OK(ncclCommDestroy(comm));
    OK(ncclCommInitRankConfig(&comm, world, share_id(job, "none"), rank, NULL));
    check_works(comm);
    OK(pncclCommDestroy(comm));
    /* Several ids; the first one serves. */
    ncclUniqueId ids[2] = {share_id(job, "first"), share_id(job, "second")};
    OK(ncclCommInitRankScalable(&comm, world, rank, world > 1 ? 2 : 1, ids, NULL));
    check_place(comm, rank, world);
    check_works(comm);
    OK(ncclCommDestroy(comm));
}

void nonblocking(const struct job *job) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = NULL, part = NULL;
    EQUAL(ncclCommInitRankConfig(&comm, job->world, share_id(job, "nonblocking"), job->rank, &config), ncclInProgress);
    CHECK(comm != NULL);
    EQUAL(settled(comm), ncclSuccess);
    check_place(comm, job->rank, job->world);
    /* A call that is in progress keeps the next one out, and says so. */
    float one[100], sum[100];
    for (int at = 0; at < 100; at++) one[at] = (float)at;
    EQUAL(ncclAllReduce(one, sum, 100, ncclFloat, ncclSum, comm, NULL), ncclInProgress);
    EQUAL(settled(comm), ncclSuccess);
    for (int at = 0; at < 100; at++) CHECK(sum[at] == (float)(at * job->world));
    OK(ncclGroupStart());
    OK(ncclAllReduce(one, sum, 100, ncclFloat, ncclMax, comm, NULL));
    OK(ncclBroadcast(one, one, 100, ncclFloat, 0, comm, NULL));
    EQUAL(ncclGroupEnd(), ncclInProgress);
    EQUAL(settled(comm), ncclSuccess);
    for (int at = 0; at < 100; at++) CHECK(sum[at] == (float)at);
    /* A part inherits that calls do not block. */
    EQUAL(ncclCommSplit(comm, 0, -job->rank, &part, NULL), ncclInProgress);
    EQUAL(settled(comm), ncclSuccess);
    EQUAL(settled(part), ncclSuccess);
    check_place(part, job->world - 1 - job->rank, job->world);
    EQUAL(ncclCommFinalize(part), ncclInProgress);
    EQUAL(settled(part), ncclSuccess);
    OK(ncclCommDestroy(part));
    EQUAL(ncclCommFinalize(comm), ncclInProgress);
    EQUAL(settled(comm), ncclSuccess);
    REFUSED(ncclInvalidUsage, "finalized", ncclAllReduce(one, sum, 100, ncclFloat, ncclSum, comm, NULL));
    OK(ncclCommDestroy(comm));
    if (job->world == 1) return;
    /* While the others have not come, joining is in progress; abortion ends it. */
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    EQUAL(ncclCommInitRankConfig(&comm, job->world, id, job->rank, &config), ncclInProgress);
    ncclResult_t state;
    OK(ncclCommGetAsyncError(comm, &state));
    EQUAL(state, ncclInProgress);
    REFUSED(ncclInvalidUsage, "in progress", ncclAllReduce(one, sum, 100, ncclFloat, ncclSum, comm, NULL));
    OK(ncclCommAbort(comm));
    REFUSED(ncclInvalidArgument, "aborted before", ncclCommGetAsyncError(comm, &state));
}

void split(const struct job *job) {
    int world = job->world, rank = job->rank;
    ncclComm_t comm = join(job, "split"), part = NULL, twin = NULL;
    /* Even and odd ranks, the last one first. */
    OK(ncclCommSplit(comm, rank % 2, -rank, &part, NULL));
    int members = (world + 1 - rank % 2) / 2;
    check_place(part, members - 1 - rank / 2, members);
    check_works(part);
    /* Parts of parts. */
    OK(pncclCommSplit(part, 0, 0, &twin, NULL));
    check_works(twin);
    check_works(comm);
    OK(ncclCommDestroy(twin));
    OK(ncclCommDestroy(part));
    /* One rank has no colour. */
    part = (ncclComm_t)&part;
    OK(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 7, 0, &part, NULL));
    CHECK((part == NULL) == (rank == 0));
    if (rank != 0) {
        check_place(part, rank - 1, world - 1);
        check_works(part);
        OK(ncclCommDestroy(part));
    }
    /* Two splits in one group. */
    OK(ncclGroupStart());
    OK(ncclCommSplit(comm, 1, rank, &part, NULL));
    OK(ncclCommSplit(comm, rank, 0, &twin, NULL));
    OK(ncclGroupEnd());
    check_place(part, rank, world);
    check_place(twin, 0, 1);
    check_works(part);
    check_works(twin);
    /* A part outlives the whole. */
    OK(ncclCommDestroy(comm));
    check_works(part);
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommSplit(comm, 0, 0, &comm, NULL));
    CHECK(comm == NULL);
    REFUSED(ncclInvalidArgument, "color is -2", ncclCommSplit(part, -2, 0, &comm, NULL));
    OK(ncclCommDestroy(part));
    OK(ncclCommDestroy(twin));
}

void shrink(const struct job *job) {
    int world = job->world, rank = job->rank, none[1] = {0}, self[1] = {rank}, beyond[1] = {world};
    ncclComm_t comm = join(job, "shrink"), part = NULL;
    REFUSED(ncclInvalidArgument, "give at least one", ncclCommShrink(comm, none, 0, &part, NULL, NCCL_SHRINK_DEFAULT));
    REFUSED(ncclInvalidArgument, "only ranks that stay", ncclCommShrink(comm, self, 1, &part, NULL, NCCL_SHRINK_DEFAULT));
    REFUSED(ncclInvalidArgument, "is no rank", ncclCommShrink(comm, beyond, 1, &part, NULL, NCCL_SHRINK_DEFAULT));
    REFUSED(ncclInvalidArgument, "excludeRanksList is null", ncclCommShrink(comm, NULL, 1, &part, NULL, NCCL_SHRINK_DEFAULT));
    REFUSED(ncclInvalidUsage, "NCCL_SHRINK_ABORT is not there", ncclCommShrink(comm, none, 1, &part, NULL, NCCL_SHRINK_ABORT));
    REFUSED(ncclInvalidArgument, "shrinkFlags is 9", ncclCommShrink(comm, none, 1, &part, NULL, 9));
    CHECK(part == NULL);
    if (world > 1) {
        /* Ranks 0 and world - 1 are left out, and do nothing about it. */
        int without[2] = {world - 1, 0}, count = world > 2 ? 2 : 1;
        if (rank != world - 1 && (rank != 0 || world == 2)) {
            OK(ncclCommShrink(comm, without, count, &part, NULL, NCCL_SHRINK_DEFAULT));
            check_place(part, world > 2 ? rank - 1 : 0, world - count);
            check_works(part);
        }
        /* The whole still works, with all ranks. */
        check_works(comm);
        if (part != NULL) OK(ncclCommDestroy(part));
    }
    OK(ncclCommDestroy(comm));
}

void farewell(const struct job *job) {
    float data = 1;
    ncclResult_t state;
    int number;
    ncclComm_t comm = join(job, "farewell"), other = join(job, "other");
    OK(ncclCommFinalize(comm));
    OK(ncclCommGetAsyncError(comm, &state));
    EQUAL(state, ncclSuccess);
    REFUSED(ncclInvalidUsage, "finalized", ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, NULL));
    REFUSED(ncclInvalidUsage, "finalized", ncclCommFinalize(comm));
    OK(ncclCommDestroy(comm));
    /* The handle of a communicator that was is known as such, by every function. */
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommDestroy(comm));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommAbort(comm));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommFinalize(comm));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommRevoke(comm, 0));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommCount(comm, &number));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommUserRank(comm, &number));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommCuDevice(comm, &number));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommGetAsyncError(comm, &state));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, NULL));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclSend(&data, 1, ncclFloat, 0, comm, NULL));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclRecv(&data, 1, ncclFloat, 0, comm, NULL));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    REFUSED(ncclInvalidArgument, "destroyed before", ncclCommResume(comm));
    char name[32];
    snprintf(name, sizeof name, "rank %d of %d", job->rank, job->world);
    SAYS(ncclGetLastError(NULL), name);
    /* Nobody else's handle is it again. */
    ncclComm_t next = join(job, "next");
    CHECK(next != comm);
    check_works(next);
    OK(ncclCommAbort(next));
    REFUSED(ncclInvalidArgument, "aborted before", ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, next, NULL));
    REFUSED(ncclInvalidArgument, "aborted before", ncclCommAbort(next));
    check_works(other);
    /* What never was a communicator is none either. */
    REFUSED(ncclInvalidArgument, "is no communicator", ncclCommDestroy((ncclComm_t)&data));
    /* Suspended, and resumed. */
    uint64_t value;
    OK(ncclCommSuspend(other, NCCL_SUSPEND_MEM));
    OK(ncclCommMemStats(other, ncclStatGpuMemSuspended, &value));
    EQUAL(value, 1);
    REFUSED(ncclInvalidUsage, "ncclCommResume first", ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, other, NULL));
    REFUSED(ncclInvalidUsage, "suspended", ncclCommSuspend(other, NCCL_SUSPEND_MEM));
    OK(pncclCommResume(other));
    REFUSED(ncclInvalidUsage, "is not suspended", ncclCommResume(other));
    REFUSED(ncclInvalidArgument, "flags is 0", ncclCommSuspend(other, 0));
    OK(ncclCommMemStats(other, ncclStatGpuMemSuspended, &value));
    EQUAL(value, 0);
    check_works(other);
    OK(ncclCommDestroy(other));
}

struct waiting {
    ncclComm_t comm;
    ncclResult_t code;
};

/* Waits for a peer that never comes. */
static void *wait_in_vain(void *argument) {
    struct waiting *waiting = argument;
    float data[4] = {0};
    waiting->code = ncclAllReduce(data, data, 4, ncclFloat, ncclSum, waiting->comm, NULL);
    return NULL;
}

void abort_ends_a_wait(const struct job *job) {
    ncclComm_t comm = join(job, "abort"), other = join(job, "stays");
    if (job->world > 1 && job->rank != job->world - 1) {
        struct waiting waiting = {comm, ncclSuccess};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, wait_in_vain, &waiting) == 0);
        meet(job, "begun");
        /* Rank 0 aborts itself; the others are told by it. */
        if (job->rank == 0) OK(ncclCommAbort(comm));
        CHECK(pthread_join(thread, NULL) == 0);
        EQUAL(waiting.code, ncclRemoteError);
        SAYS(ncclGetLastError(NULL), "ncclCommAbort was called");
        char name[16];
        snprintf(name, sizeof name, "rank %d", job->rank);
        SAYS(ncclGetLastError(NULL), name);
        SAYS(ncclGetLastError(NULL), "all_reduce number 0");
        if (job->rank != 0) {
            ncclResult_t state;
            OK(ncclCommGetAsyncError(comm, &state));
            EQUAL(state, ncclRemoteError);
            SAYS(ncclGetLastError(comm), "ncclCommAbort was called");
            OK(ncclCommAbort(comm));
        }
    } else {
        meet(job, "begun");
        OK(ncclCommAbort(comm));
    }
    /* The other communicator knows nothing of it. */
    check_works(other);
    OK(ncclCommDestroy(other));
}

void revocation(const struct job *job) {
    float data = 1;
    ncclComm_t comm = join(job, "revoke");
    check_works(comm);
    REFUSED(ncclInvalidArgument, "revokeFlags is 5", ncclCommRevoke(comm, 5));
    meet(job, "worked");
    OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    REFUSED(ncclInvalidUsage, "was revoked", ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, NULL));
    REFUSED(ncclInvalidUsage, "that is ready", pncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    OK(ncclCommDestroy(comm));
    ncclComm_t next = join(job, "afterwards");
    check_works(next);
    OK(ncclCommDestroy(next));
}
