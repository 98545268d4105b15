/* A collective call as data, and what runs and checks it. */
#ifndef CALL_H
#define CALL_H

#include "check.h"

enum collective {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    BCAST,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    COLLECTIVES
};

/* One call, the same on all ranks. */
struct call {
    enum collective collective;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    /* What the inputs are multiplied with, if `op` was made for it. */
    double factor;
    int root;
};

/* Runs a call and checks every element. In place the smaller of the two buffers lies in the larger one; an
 * all-to-all has no such form. Every other call has buffers that are aligned to nothing. */
void run_call(const struct job *job, ncclComm_t comm, const struct call *call, int is_in_place);

#endif
