/* Calls drawn from a seed, the same on all ranks: collectives of every kind, messages, and groups of both, on two
 * communicators, of which one is made anew now and then. RINGSMITH_TEST_SEED repeats a run. */
#include "call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often something is drawn; RINGSMITH_TEST_WHOLE draws longer. */
enum { ROUNDS = 120, MANY_ROUNDS = 8000, MOST_RANKS = 8, MOST_MESSAGES = 3 };

static uint64_t state;

/* A number below `bound`: xorshift. */
static size_t below(size_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 16) % bound;
}

static int one_in(size_t chances) {
    return below(chances) == 0;
}

/* Mostly small, at times nothing, at times beyond a slot of the transport. */
static size_t draw_count(void) {
    switch (below(8)) {
        case 0: return 0;
        case 1: return below(70000);
        case 2: return below(4000);
        default: return below(200);
    }
}

static void one_collective(const struct job *job, ncclComm_t comm) {
    struct call call;
    call.collective = (enum collective)below(COLLECTIVES);
    call.count = draw_count();
    call.type = (ncclDataType_t)below(ncclNumTypes);
    call.op = (ncclRedOp_t)below(ncclNumOps);
    call.factor = 1;
    call.root = (int)below((size_t)job->world);
    int is_in_place = call.collective != ALL_TO_ALL && one_in(3);
    ncclRedOp_t made = ncclSum;
    if (one_in(6)) {
        char scalar[8];
        call.factor = 2;
        set(scalar, 0, call.type, call.factor);
        OK(ncclRedOpCreatePreMulSum(&made, scalar, call.type, ncclScalarHostImmediate, comm));
        call.op = made;
    }
    run_call(job, comm, &call, is_in_place);
    if (made != ncclSum) OK(ncclRedOpDestroy(made, comm));
}

/* What two ranks send each other in one group, on one communicator. */
struct exchange {
    size_t bytes[MOST_RANKS][MOST_RANKS][MOST_MESSAGES];
    char *sent[MOST_RANKS][MOST_MESSAGES];
    char *received[MOST_RANKS][MOST_MESSAGES];
};

static void begin_exchange(const struct job *job, ncclComm_t comm, struct exchange *exchange) {
    for (int from = 0; from < job->world; from++) {
        for (int to = 0; to < job->world; to++) {
            for (int k = 0; k < MOST_MESSAGES; k++) exchange->bytes[from][to][k] = one_in(3) ? 0 : draw_count();
        }
    }
    for (int peer = 0; peer < job->world; peer++) {
        for (int k = 0; k < MOST_MESSAGES; k++) {
            size_t out = exchange->bytes[job->rank][peer][k], in = exchange->bytes[peer][job->rank][k];
            exchange->sent[peer][k] = malloc(out + 1);
            exchange->received[peer][k] = malloc(in + 1);
            memset(exchange->sent[peer][k], job->rank * 8 + k, out);
            memset(exchange->received[peer][k], 0x7f, in + 1);
            OK(ncclRecv(exchange->received[peer][k], in, ncclUint8, peer, comm, NULL));
            OK(ncclSend(exchange->sent[peer][k], out, ncclUint8, peer, comm, NULL));
        }
    }
}

static void check_exchange(const struct job *job, struct exchange *exchange) {
    for (int peer = 0; peer < job->world; peer++) {
        for (int k = 0; k < MOST_MESSAGES; k++) {
            size_t in = exchange->bytes[peer][job->rank][k];
            for (size_t at = 0; at < in; at++) EQUAL(exchange->received[peer][k][at], peer * 8 + k);
            EQUAL(exchange->received[peer][k][in], 0x7f);
            free(exchange->sent[peer][k]);
            free(exchange->received[peer][k]);
        }
    }
}

/* Messages on both communicators, and collectives between them, in one group. */
static void one_group(const struct job *jobs, ncclComm_t *comms) {
    static struct exchange exchanges[2];
    int32_t one[2] = {1, 1}, sums[2] = {0, 0};
    size_t first = below(2);
    OK(ncclGroupStart());
    for (size_t at = 0; at < 2; at++) {
        size_t which = at ^ first;
        begin_exchange(&jobs[which], comms[which], &exchanges[which]);
        OK(ncclAllReduce(&one[which], &sums[which], 1, ncclInt32, ncclSum, comms[which], NULL));
    }
    OK(ncclGroupEnd());
    for (int which = 0; which < 2; which++) {
        check_exchange(&jobs[which], &exchanges[which]);
        EQUAL(sums[which], jobs[which].world);
    }
}

void random_calls(const struct job *job) {
    const char *seed = getenv("RINGSMITH_TEST_SEED");
    /* Never 0, which would stay 0. */
    state = (seed == NULL ? 1 : strtoull(seed, NULL, 10)) * 2654435769u + 88172645463325252u;
    const char *whole = getenv("RINGSMITH_TEST_WHOLE");
    int rounds = whole != NULL && strcmp(whole, "0") != 0 ? MANY_ROUNDS : ROUNDS;
    ncclComm_t comms[2] = {join(job, "random"), NULL};
    struct job jobs[2] = {*job, *job};
    jobs[1].rank = job->world - 1 - job->rank;
    OK(ncclCommSplit(comms[0], 3, -job->rank, &comms[1], NULL));
    for (int round = 0; round < rounds; round++) {
        size_t which = below(2);
        if (one_in(6)) {
            one_group(jobs, comms);
        } else if (one_in(40)) {
            OK(ncclCommDestroy(comms[1]));
            OK(ncclCommSplit(comms[0], 3, -job->rank, &comms[1], NULL));
        } else {
            one_collective(&jobs[which], comms[which]);
        }
    }
    OK(ncclCommDestroy(comms[0]));
    OK(ncclCommDestroy(comms[1]));
}
