#define _GNU_SOURCE
/* Communicators from their ids to their ends: initialisation, division, farewell, abortion. */
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* A port of this host that nobody has just now. */
static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    close(listener);
    return ntohs(address.sin_port);
}

void fixed_address(const struct job *job) {
    int port = job->rank == 0 ? free_port() : 0;
    char place[64];
    share(job, "port", &port, sizeof port);
    snprintf(place, sizeof place, "127.0.0.1:%d", port);
    CHECK(setenv("NCCL_COMM_ID", place, 1) == 0);
    /* Every process may make the id: it is the same, and rank 0 listens there. */
    ncclUniqueId id, again;
    ncclComm_t comm, part;
    OK(ncclGetUniqueId(&id));
    OK(ncclGetUniqueId(&again));
    CHECK(memcmp(&id, &again, sizeof id) == 0);
    OK(ncclCommInitRank(&comm, job->world, id, job->rank));
    check_place(comm, job->rank, job->world);
    check_works(comm);
    OK(ncclCommSplit(comm, job->rank % 2, 0, &part, NULL));
    check_works(part);
    OK(ncclCommDestroy(part));
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

void farewell_in_any_order(const struct job *job) {
    /* Each rank destroys its communicators in an order of its own, and so must not wait in it for the others. */
    enum { COMMS = 4 };
    const char *names[COMMS] = {"order_a", "order_b", "order_c", "order_d"};
    ncclComm_t comms[COMMS], parts[COMMS];
    for (int at = 0; at < COMMS; at++) {
        comms[at] = join(job, names[at]);
        /* The first rank of a part holds its root: another one for each. */
        OK(ncclCommSplit(comms[at], 0, (job->rank + at) % job->world, &parts[at], NULL));
    }
    for (int at = 0; at < COMMS; at++) {
        int which = (at + job->rank) % COMMS;
        OK(ncclCommDestroy(parts[which]));
        OK(ncclCommDestroy(comms[which]));
        /* Nobody goes on before everybody has come here. */
        const char *steps[COMMS] = {"step_a", "step_b", "step_c", "step_d"};
        if (at + 1 < COMMS) meet(job, steps[at]);
    }
    /* The same for ranks of one thread. */
    ncclComm_t own[8], own_parts[8];
    OK(ncclCommInitAll(own, job->world, NULL));
    OK(ncclGroupStart());
    for (int at = 0; at < job->world; at++) OK(ncclCommSplit(own[at], 0, -at, &own_parts[at], NULL));
    OK(ncclGroupEnd());
    for (int at = 0; at < job->world; at++) {
        OK(ncclCommDestroy(own[at]));
        OK(ncclCommDestroy(own_parts[job->world - 1 - at]));
    }
}

/* Entries of a folder. */
static int entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

void nothing_stays(const struct job *job) {
    enum { ROUNDS = 12 };
    int descriptors = 0, threads = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char name[32];
        snprintf(name, sizeof name, "round_%d", round);
        ncclComm_t comm = join(job, name), part;
        OK(ncclCommSplit(comm, job->rank % 2, 0, &part, NULL));
        check_works(part);
        check_works(comm);
        if (round % 3 == 2) {
            OK(ncclCommAbort(part));
            OK(ncclCommAbort(comm));
        } else {
            OK(ncclCommDestroy(comm));
            OK(ncclCommDestroy(part));
        }
        /* Abortion lets go in the background: a moment is allowed, more and more is not. */
        snprintf(name, sizeof name, "counted_%d", round);
        meet(job, name);
        for (int tries = 0; round > 0 && tries < 20000; tries++) {
            if (entries("/proc/self/fd") <= descriptors && entries("/proc/self/task") <= threads) break;
            pause_briefly();
        }
        if (round == 0) {
            descriptors = entries("/proc/self/fd");
            threads = entries("/proc/self/task");
        }
        CHECK(entries("/proc/self/fd") <= descriptors);
        CHECK(entries("/proc/self/task") <= threads);
    }
}

void lost_peer(const struct job *job) {
    ncclComm_t comm = join(job, "lost");
    check_works(comm);
    int last = job->world - 1;
    if (job->world > 1 && job->rank == last) _exit(0);
    float data = 1;
    if (job->world > 1) {
        char who[32], lost[32];
        snprintf(who, sizeof who, "rank %d: all_reduce number 1", job->rank);
        snprintf(lost, sizeof lost, "rank %d ", last);
        REFUSED(ncclRemoteError, who, ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, NULL));
        SAYS(ncclGetLastError(NULL), lost);
        /* And what to do about it. */
        SAYS(ncclGetLastError(NULL), "; ");
        REFUSED(ncclRemoteError, "not begun", ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comm, NULL));
        ncclResult_t state;
        OK(ncclCommGetAsyncError(comm, &state));
        EQUAL(state, ncclRemoteError);
        OK(ncclCommAbort(comm));
        return;
    }
    OK(ncclCommDestroy(comm));
}

struct waiting {
    ncclComm_t comm;
    int last;
    ncclResult_t code;
};

/* Tells the last rank that the wait begins, and waits for its answer, which never comes. */
static void *wait_in_vain(void *argument) {
    struct waiting *waiting = argument;
    float out = 1, in;
    OK(ncclGroupStart());
    OK(ncclSend(&out, 1, ncclFloat, waiting->last, waiting->comm, NULL));
    OK(ncclRecv(&in, 1, ncclFloat, waiting->last, waiting->comm, NULL));
    waiting->code = ncclGroupEnd();
    return NULL;
}

void abort_ends_a_wait(const struct job *job) {
    ncclComm_t comm = join(job, "abort"), other = join(job, "stays");
    int last = job->world - 1;
    if (job->rank != last) {
        struct waiting waiting = {comm, last, ncclSuccess};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, wait_in_vain, &waiting) == 0);
        meet(job, "begun");
        /* Rank 0 aborts; the others are told. */
        if (job->rank == 0) OK(ncclCommAbort(comm));
        CHECK(pthread_join(thread, NULL) == 0);
        EQUAL(waiting.code, ncclRemoteError);
        SAYS(ncclGetLastError(NULL), "ncclCommAbort was called");
        char name[16];
        snprintf(name, sizeof name, "rank %d", job->rank);
        SAYS(ncclGetLastError(NULL), name);
        SAYS(ncclGetLastError(NULL), "exchange number 0");
        if (job->rank != 0) {
            ncclResult_t state;
            OK(ncclCommGetAsyncError(comm, &state));
            EQUAL(state, ncclRemoteError);
            SAYS(ncclGetLastError(comm), "ncclCommAbort was called");
            OK(ncclCommAbort(comm));
        }
    } else {
        float in;
        for (int peer = 0; peer < last; peer++) OK(ncclRecv(&in, 1, ncclFloat, peer, comm, NULL));
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
