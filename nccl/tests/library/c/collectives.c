/* Every collective with every type, operation and count, apart and in place, beside a result that is computed
 * here from the inputs of all ranks. */
#include "call.h"

#include <stdlib.h>
#include <string.h>

/* The element of an input. */
static double element(int rank, size_t at) {
    return (double)(((size_t)rank * 5 + at * 3 + at / 7) % 3);
}

static int has_blocks_in(enum collective collective) {
    return collective == REDUCE_SCATTER || collective == ALL_TO_ALL || collective == SCATTER;
}

static int has_blocks_out(enum collective collective) {
    return collective == ALL_GATHER || collective == ALL_TO_ALL || collective == GATHER;
}

/* Whether a rank has an input or output at all. */
static int has_input(const struct call *call, int rank) {
    return call->collective != SCATTER || rank == call->root;
}

static int has_output(const struct call *call, int rank) {
    return (call->collective != REDUCE && call->collective != GATHER) || rank == call->root;
}

static double folded(const struct call *call, int world, size_t at) {
    double result = element(0, at), sum = result;
    for (int rank = 1; rank < world; rank++) {
        double next = element(rank, at);
        sum += next;
        if (call->op == ncclProd) result *= next;
        if (call->op == ncclMax) result = next > result ? next : result;
        if (call->op == ncclMin) result = next < result ? next : result;
    }
    if (call->op == ncclSum) return sum;
    if (call->op == ncclAvg) return is_integer(call->type) ? (double)((int)sum / world) : sum / world;
    return call->op < ncclNumOps ? result : sum * call->factor;
}

/* What a rank's output holds at a place. */
static double expected(const struct call *call, int world, int rank, size_t at) {
    size_t count = call->count;
    switch (call->collective) {
        case ALL_REDUCE:
        case REDUCE: return folded(call, world, at);
        case BROADCAST:
        case BCAST: return element(call->root, at);
        case REDUCE_SCATTER: return folded(call, world, at + (size_t)rank * count);
        case ALL_GATHER:
        case GATHER: return element((int)(at / count), at % count);
        case ALL_TO_ALL: return element((int)(at / count), at % count + (size_t)rank * count);
        case SCATTER: return element(call->root, at + (size_t)rank * count);
        default: fail(__FILE__, __LINE__, "collective %d", call->collective);
    }
}

/* Makes the call, by the function or by its twin. */
static ncclResult_t make(const struct call *c, const void *in, void *out, ncclComm_t comm) {
    static int calls = 0;
    int twin = calls++ % 2;
#define EITHER(name, ...) (twin ? pnccl##name(__VA_ARGS__) : nccl##name(__VA_ARGS__))
    switch (c->collective) {
        case ALL_REDUCE: return EITHER(AllReduce, in, out, c->count, c->type, c->op, comm, NULL);
        case REDUCE: return EITHER(Reduce, in, out, c->count, c->type, c->op, c->root, comm, NULL);
        case BROADCAST: return EITHER(Broadcast, in, out, c->count, c->type, c->root, comm, NULL);
        case BCAST: return EITHER(Bcast, out, c->count, c->type, c->root, comm, NULL);
        case REDUCE_SCATTER: return EITHER(ReduceScatter, in, out, c->count, c->type, c->op, comm, NULL);
        case ALL_GATHER: return EITHER(AllGather, in, out, c->count, c->type, comm, NULL);
        case ALL_TO_ALL: return EITHER(AlltoAll, in, out, c->count, c->type, comm, NULL);
        case GATHER: return EITHER(Gather, in, out, c->count, c->type, c->root, comm, NULL);
        case SCATTER: return EITHER(Scatter, in, out, c->count, c->type, c->root, comm, NULL);
        default: fail(__FILE__, __LINE__, "collective %d", c->collective);
    }
}

/* Bytes behind an output that must stay as they were. */
#define MARGIN 16

void run_call(const struct job *job, ncclComm_t comm, const struct call *call, int is_in_place) {
    size_t width = size_of_type(call->type), world = (size_t)job->world;
    size_t inputs = call->count * (has_blocks_in(call->collective) ? world : 1);
    size_t outputs = call->count * (has_blocks_out(call->collective) ? world : 1);
    size_t block = (size_t)job->rank * call->count * width;
    size_t in_bytes = inputs * width, out_bytes = outputs * width;
    size_t bytes = (in_bytes > out_bytes ? in_bytes : out_bytes) + MARGIN;
    static int runs = 0;
    size_t shift = (runs + runs / ncclNumTypes) % 2;
    runs++;
    char *one_start = malloc(bytes + shift), *other_start = malloc(bytes + shift);
    char *one = one_start + shift, *other = other_start + shift;
    memset(one, 0x5a, bytes);
    memset(other, 0x5a, bytes);
    char *in = one, *out = other;
    if (is_in_place) {
        in = has_blocks_out(call->collective) && !has_blocks_in(call->collective) ? one + block : one;
        out = has_blocks_in(call->collective) && !has_blocks_out(call->collective) ? one + block : one;
    }
    /* Bcast has one buffer, whatever was asked for. */
    if (call->collective == BCAST) out = in;
    for (size_t at = 0; at < inputs; at++) set(in, at, call->type, element(job->rank, at));
    int reads = has_input(call, job->rank), writes = has_output(call, job->rank);
    OK(make(call, reads ? in : NULL, writes ? out : NULL, comm));
    for (size_t at = 0; writes && at < outputs; at++) {
        double actual = value_at(out, at, call->type), wanted = expected(call, job->world, job->rank, at);
        if (actual != wanted) {
            fail(__FILE__, __LINE__, "collective %d count %zu type %d op %d root %d, rank %d of %d: element %zu is %g, not %g",
                 call->collective, call->count, call->type, call->op, call->root, job->rank, job->world, at, actual, wanted);
        }
    }
    for (size_t at = bytes - MARGIN; at < bytes; at++) CHECK(one[at] == 0x5a && other[at] == 0x5a);
    free(one_start);
    free(other_start);
}

static const size_t counts[] = {0, 1, 7, 1000, 40001};
#define COUNTS (sizeof counts / sizeof counts[0])

static void every_shape(const struct job *job, const char *name, int is_in_place) {
    ncclComm_t comm = join(job, name);
    for (int collective = 0; collective < COLLECTIVES; collective++) {
        if (is_in_place && collective == ALL_TO_ALL) continue;
        for (size_t at = 0; at < COUNTS; at++) {
            for (int type = 0; type < ncclNumTypes; type++) {
                struct call call = {(enum collective)collective, counts[at], (ncclDataType_t)type, ncclSum, 1, (type + collective) % job->world};
                run_call(job, comm, &call, is_in_place);
            }
        }
    }
    OK(ncclCommDestroy(comm));
}

void collectives(const struct job *job) {
    every_shape(job, "collectives", 0);
}

void in_place(const struct job *job) {
    every_shape(job, "in_place", 1);
}

static void every_reduction(const struct job *job, ncclComm_t comm, struct call call) {
    const enum collective reductions[] = {ALL_REDUCE, REDUCE, REDUCE_SCATTER};
    for (size_t which = 0; which < 3; which++) {
        for (size_t at = 0; at < COUNTS; at++) {
            call.collective = reductions[which];
            call.count = counts[at];
            call.root = (int)at % job->world;
            run_call(job, comm, &call, at % 2 == 0);
        }
    }
}

void operations(const struct job *job) {
    ncclComm_t comm = join(job, "operations");
    for (int type = 0; type < ncclNumTypes; type++) {
        for (int op = 0; op < ncclNumOps; op++) {
            struct call call = {ALL_REDUCE, 0, (ncclDataType_t)type, (ncclRedOp_t)op, 1, 0};
            every_reduction(job, comm, call);
        }
        const double factors[] = {2, is_integer((ncclDataType_t)type) ? 3 : 0.5};
        ncclRedOp_t made[2];
        for (int at = 0; at < 2; at++) {
            char scalar[8] = {0};
            set(scalar, 0, (ncclDataType_t)type, factors[at]);
            /* The factor is read at once: what happens to the variable later does not matter. */
            OK(ncclRedOpCreatePreMulSum(&made[at], scalar, (ncclDataType_t)type, at ? ncclScalarDevice : ncclScalarHostImmediate, comm));
            memset(scalar, 0xff, sizeof scalar);
            CHECK(made[at] >= ncclNumOps && made[at] <= ncclMaxRedOp);
        }
        CHECK(made[0] != made[1]);
        for (int at = 0; at < 2; at++) {
            struct call call = {ALL_REDUCE, 0, (ncclDataType_t)type, made[at], factors[at], 0};
            every_reduction(job, comm, call);
        }
        char data[8] = {0};
        ncclDataType_t another = type == ncclInt8 ? ncclUint8 : ncclInt8;
        REFUSED(ncclInvalidArgument, "was made for", ncclAllReduce(data, data, 1, another, made[0], comm, NULL));
        OK(ncclRedOpDestroy(made[0], comm));
        OK(pncclRedOpDestroy(made[1], comm));
        REFUSED(ncclInvalidArgument, "is no ncclRedOp_t", ncclAllReduce(data, data, 1, (ncclDataType_t)type, made[1], comm, NULL));
        REFUSED(ncclInvalidArgument, "is no operation", ncclRedOpDestroy(made[1], comm));
    }
    OK(ncclCommDestroy(comm));
}

/* Bytes of the k-th message between two ranks: some are empty. */
static size_t message_bytes(int from, int to, int k) {
    return (size_t)((from * 37 + to * 11 + k * 7) % 5) * (k == 2 ? 30000 : 13);
}

void messages(const struct job *job) {
    enum { EACH = 4 };
    ncclComm_t comm = join(job, "messages");
    int world = job->world, rank = job->rank;
    /* Every rank sends several messages to every rank, itself included, all of them in one group; those of a
     * pair match in their order, whatever lies between. */
    char *sent[8][EACH], *received[8][EACH];
    OK(ncclGroupStart());
    for (int k = 0; k < EACH; k++) {
        for (int peer = 0; peer < world; peer++) {
            size_t out = message_bytes(rank, peer, k), in = message_bytes(peer, rank, k);
            sent[peer][k] = out ? malloc(out) : NULL;
            received[peer][k] = in ? malloc(in) : NULL;
            if (out) memset(sent[peer][k], rank * 16 + k + 1, out);
            if (in) memset(received[peer][k], 0, in);
            OK(ncclSend(sent[peer][k], out, ncclInt8, peer, comm, NULL));
        }
        for (int peer = world - 1; peer >= 0; peer--) {
            OK(pncclRecv(received[peer][k], message_bytes(peer, rank, k), ncclChar, peer, comm, NULL));
        }
    }
    OK(ncclGroupEnd());
    for (int peer = 0; peer < world; peer++) {
        for (int k = 0; k < EACH; k++) {
            for (size_t at = 0; at < message_bytes(peer, rank, k); at++) {
                EQUAL(received[peer][k][at], peer * 16 + k + 1);
            }
            free(sent[peer][k]);
            free(received[peer][k]);
        }
    }
    /* Without a group: one of a pair sends, the other receives. */
    double number = rank + 1;
    if (world > 1 && rank == 0) OK(pncclSend(&number, 1, ncclDouble, 1, comm, NULL));
    if (world > 1 && rank == 1) {
        OK(ncclRecv(&number, 1, ncclDouble, 0, comm, NULL));
        CHECK(number == 1);
    }
    OK(ncclCommDestroy(comm));
}
