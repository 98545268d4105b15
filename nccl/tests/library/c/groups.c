/* Groups: calls of one and of several communicators, messages beside collectives, nesting, mistakes. */
#include "check.h"

#include <string.h>

enum { COUNT = 300 };

static void fill(float *data, int value) {
    for (int at = 0; at < COUNT; at++) data[at] = (float)(value + at % 3);
}

static void check_filled(const float *data, float factor, float offset) {
    for (int at = 0; at < COUNT; at++) CHECK(data[at] == factor * (float)(at % 3) + offset);
}

/* 0 + 1 + ... + (n - 1) */
static float below(int n) {
    return (float)(n * (n - 1) / 2);
}

void groups(const struct job *job) {
    ncclComm_t comm = join(job, "groups");
    int world = job->world, rank = job->rank, next = (rank + 1) % world, before = (rank + world - 1) % world;
    float one[COUNT], sum[COUNT], all[8 * COUNT], out[COUNT], in[COUNT], most[COUNT];
    fill(one, rank);
    fill(out, rank * 10);
    memset(in, 0, sizeof in);
    /* Several collectives and messages, zero counts among them, in nested groups. */
    OK(ncclGroupStart());
    OK(ncclAllReduce(one, sum, COUNT, ncclFloat, ncclSum, comm, NULL));
    OK(pncclGroupStart());
    OK(ncclSend(out, COUNT, ncclFloat, next, comm, NULL));
    OK(ncclAllGather(one, all, COUNT, ncclFloat, comm, NULL));
    OK(ncclRecv(in, COUNT, ncclFloat, before, comm, NULL));
    OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comm, NULL));
    OK(ncclSend(NULL, 0, ncclFloat, next, comm, NULL));
    OK(ncclRecv(NULL, 0, ncclFloat, before, comm, NULL));
    OK(pncclGroupEnd());
    OK(ncclAllReduce(one, most, COUNT, ncclFloat, ncclMax, comm, NULL));
    OK(ncclGroupEnd());
    check_filled(sum, (float)world, below(world));
    for (int peer = 0; peer < world; peer++) check_filled(all + peer * COUNT, 1, (float)peer);
    check_filled(in, 1, (float)before * 10);
    check_filled(most, 1, (float)(world - 1));
    /* A group of nothing. */
    OK(ncclGroupStart());
    OK(ncclGroupEnd());
    /* What a group would take; nothing of it is begun, so ranks may ask what they like. */
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    memset(sum, 0, sizeof sum);
    OK(ncclGroupStart());
    for (int call = 0; call <= rank; call++) OK(ncclAllReduce(one, sum, COUNT, ncclFloat, ncclSum, comm, NULL));
    OK(ncclGroupSimulateEnd(&info));
    CHECK(info.estimatedTime > 0 || world == 1);
    for (int at = 0; at < COUNT; at++) CHECK(sum[at] == 0);
    OK(ncclGroupStart());
    OK(pncclGroupSimulateEnd(NULL));
    OK(ncclCommDestroy(comm));
}

void group_mistakes(const struct job *job) {
    ncclComm_t comm = join(job, "group_mistakes");
    float one[COUNT], sum[COUNT];
    fill(one, job->rank);
    REFUSED(ncclInvalidUsage, "ncclGroupStart comes first", ncclGroupEnd());
    REFUSED(ncclInvalidUsage, "ncclGroupStart comes first", ncclGroupSimulateEnd(NULL));
    /* A mistake keeps the whole group from beginning, on every rank that makes it, and says which call it was. */
    memset(sum, 0, sizeof sum);
    OK(ncclGroupStart());
    OK(ncclAllReduce(one, sum, COUNT, ncclFloat, ncclSum, comm, NULL));
    REFUSED(ncclInvalidArgument, "peer 99 is no rank", ncclSend(one, COUNT, ncclFloat, 99, comm, NULL));
    REFUSED(ncclInvalidArgument, "nothing of the group was begun", ncclGroupEnd());
    SAYS(ncclGetLastError(NULL), "peer 99");
    for (int at = 0; at < COUNT; at++) CHECK(sum[at] == 0);
    /* The next group knows nothing of it. */
    OK(ncclGroupStart());
    OK(ncclAllReduce(one, sum, COUNT, ncclFloat, ncclSum, comm, NULL));
    OK(ncclGroupEnd());
    check_filled(sum, (float)job->world, below(job->world));
    /* A message without its other half. */
    OK(ncclGroupStart());
    OK(ncclSend(one, 1, ncclFloat, job->rank, comm, NULL));
    REFUSED(ncclInvalidArgument, "", ncclGroupEnd());
    ncclSimInfo_t blank;
    memset(&blank, 0, sizeof blank);
    OK(ncclGroupStart());
    REFUSED(ncclInvalidArgument, "NCCL_SIM_INFO_INITIALIZER", ncclGroupSimulateEnd(&blank));
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    OK(ncclGroupEnd());
    OK(ncclGroupSimulateEnd(&info));
    /* The communicator is as good as before. */
    OK(ncclAllReduce(one, sum, COUNT, ncclFloat, ncclSum, comm, NULL));
    check_filled(sum, (float)job->world, below(job->world));
    OK(ncclCommDestroy(comm));
}

void several_communicators(const struct job *job) {
    enum { COMMS = 3 };
    /* Initialised in one group, used in one group, in an order of each rank's own. */
    ncclUniqueId ids[COMMS];
    ncclComm_t comms[COMMS];
    float one[COMMS][COUNT], sum[COMMS][COUNT];
    const char *names[COMMS] = {"several_a", "several_b", "several_c"};
    for (int at = 0; at < COMMS; at++) ids[at] = share_id(job, names[at]);
    OK(ncclGroupStart());
    for (int at = 0; at < COMMS; at++) {
        int which = (at + job->rank) % COMMS;
        OK(ncclCommInitRank(&comms[which], job->world, ids[which], job->rank));
        CHECK(comms[which] != NULL);
    }
    /* A question inside, and its refusal, are no part of the group. */
    REFUSED(ncclInvalidUsage, "end the group", ncclCommCount(comms[0], &(int){0}));
    float early = 1;
    REFUSED(ncclInvalidUsage, "end the group", ncclAllReduce(&early, &early, 1, ncclFloat, ncclSum, comms[0], NULL));
    REFUSED(ncclInvalidUsage, "nothing of the group was begun", ncclGroupEnd());
    /* What was not begun is let go, and the ids are as good as before. */
    for (int at = 0; at < COMMS; at++) OK(ncclCommAbort(comms[at]));
    OK(ncclGroupStart());
    for (int at = 0; at < COMMS; at++) {
        int which = (at + job->rank) % COMMS;
        OK(ncclCommInitRank(&comms[which], job->world, ids[which], job->rank));
        REFUSED(ncclInvalidUsage, "end the group", ncclCommCount(comms[which], &(int){0}));
    }
    OK(ncclGroupEnd());
    for (int round = 0; round < 5; round++) {
        OK(ncclGroupStart());
        for (int at = 0; at < COMMS; at++) {
            int which = (at + job->rank) % COMMS;
            fill(one[which], job->rank + which);
            OK(ncclAllReduce(one[which], sum[which], COUNT, ncclFloat, ncclSum, comms[which], NULL));
        }
        OK(ncclGroupEnd());
        for (int which = 0; which < COMMS; which++) {
            check_filled(sum[which], (float)job->world, below(job->world) + (float)(which * job->world));
        }
    }
    for (int at = 0; at < COMMS; at++) OK(ncclCommDestroy(comms[at]));
}

void several_ranks_of_one_process(const struct job *job) {
    /* This process has `world` ranks of its own: as many as the others, and nothing to do with them. */
    enum { MOST = 8 };
    int ranks = job->world;
    ncclComm_t comms[MOST];
    float one[MOST][COUNT], sum[MOST][COUNT];
    int numbers[MOST];
    for (int at = 0; at < ranks; at++) numbers[at] = ranks - 1 - at;
    for (int with_list = 0; with_list < 2; with_list++) {
        OK(ncclCommInitAll(comms, ranks, with_list ? numbers : NULL));
        for (int at = 0; at < ranks; at++) {
            int rank, count, device;
            OK(ncclCommUserRank(comms[at], &rank));
            OK(ncclCommCount(comms[at], &count));
            OK(ncclCommCuDevice(comms[at], &device));
            EQUAL(rank, at);
            EQUAL(count, ranks);
            EQUAL(device, with_list ? numbers[at] : at);
        }
        OK(ncclGroupStart());
        for (int at = 0; at < ranks; at++) {
            fill(one[at], at);
            OK(ncclAllReduce(one[at], sum[at], COUNT, ncclFloat, ncclSum, comms[at], NULL));
        }
        OK(ncclGroupEnd());
        for (int at = 0; at < ranks; at++) check_filled(sum[at], (float)ranks, below(ranks));
        for (int at = 0; at < ranks; at++) OK(ncclCommDestroy(comms[at]));
    }
    /* Ranks of one id, joined in one group by one thread. */
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int at = 0; at < ranks; at++) OK(ncclCommInitRank(&comms[at], ranks, id, at));
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int at = 0; at < ranks; at++) OK(ncclBroadcast(one[at], sum[at], COUNT, ncclFloat, 0, comms[at], NULL));
    OK(ncclGroupEnd());
    for (int at = 0; at < ranks; at++) check_filled(sum[at], 1, 0);
    OK(ncclGroupStart());
    for (int at = 0; at < ranks; at++) OK(ncclCommFinalize(comms[at]));
    OK(ncclGroupEnd());
    for (int at = 0; at < ranks; at++) OK(ncclCommDestroy(comms[at]));
}
