/* Every function and its twin do the same: called with the same wrong arguments they refuse in the same words. */
#include "check.h"

#include <stdio.h>
#include <string.h>

/* The code and the last error of a call, which must not succeed. */
struct refusal {
    ncclResult_t code;
    char text[1024];
};

static struct refusal refused(ncclResult_t code) {
    struct refusal refusal = {code, ""};
    snprintf(refusal.text, sizeof refusal.text, "%s", ncclGetLastError(NULL));
    return refusal;
}

static void compare(const char *name, struct refusal one, struct refusal twin) {
    if (one.code == ncclSuccess || one.code != twin.code || strcmp(one.text, twin.text) != 0) {
        fail(__FILE__, __LINE__, "nccl%s: %d %s\npnccl%s: %d %s", name, one.code, one.text, name, twin.code, twin.text);
    }
    SAYS(one.text, name);
}

#define SAME(name, ...) compare(#name, refused(nccl##name(__VA_ARGS__)), refused(pnccl##name(__VA_ARGS__)))

void twins(const struct job *job) {
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    ncclComm_t none = NULL, made;
    ncclWaitSignalDesc_t signal = {1, 0, 0, 0};
    float data = (float)job->rank;
    SAME(GetVersion, NULL);
    SAME(MemAlloc, NULL, 1);
    SAME(MemFree, &data);
    SAME(GetUniqueId, NULL);
    SAME(CommInitRank, &made, 1, id, 0);
    SAME(CommInitRankConfig, &made, 1, id, 0, NULL);
    SAME(CommInitRankScalable, &made, 1, 0, 1, NULL, NULL);
    SAME(CommInitAll, &made, 0, NULL);
    SAME(CommFinalize, none);
    SAME(CommDestroy, none);
    SAME(CommAbort, none);
    SAME(CommRevoke, none, 0);
    SAME(CommSplit, none, 0, 0, &made, NULL);
    SAME(CommShrink, none, NULL, 0, &made, NULL, 0);
    SAME(CommGetUniqueId, none, &id);
    SAME(CommGrow, none, 2, &id, 1, &made, NULL);
    SAME(CommSuspend, none, NCCL_SUSPEND_MEM);
    SAME(CommResume, none);
    SAME(CommGetAsyncError, none, NULL);
    SAME(CommCount, none, NULL);
    SAME(CommCuDevice, none, NULL);
    SAME(CommUserRank, none, NULL);
    SAME(CommMemStats, none, ncclStatGpuMemTotal, NULL);
    SAME(CommRegister, none, &data, 4, NULL);
    SAME(CommDeregister, none, &data);
    SAME(CommWindowRegister, none, &data, 4, NULL, 0);
    SAME(CommWindowDeregister, none, NULL);
    SAME(WinGetUserPtr, none, NULL, NULL);
    SAME(RedOpCreatePreMulSum, NULL, &data, ncclFloat, ncclScalarDevice, none);
    SAME(RedOpDestroy, ncclNumOps, none);
    SAME(Reduce, &data, &data, 1, ncclFloat, ncclSum, 0, none, NULL);
    SAME(Bcast, &data, 1, ncclFloat, 0, none, NULL);
    SAME(Broadcast, &data, &data, 1, ncclFloat, 0, none, NULL);
    SAME(AllReduce, &data, &data, 1, ncclFloat, ncclSum, none, NULL);
    SAME(ReduceScatter, &data, &data, 1, ncclFloat, ncclSum, none, NULL);
    SAME(AllGather, &data, &data, 1, ncclFloat, none, NULL);
    SAME(AlltoAll, &data, &data, 1, ncclFloat, none, NULL);
    SAME(Gather, &data, &data, 1, ncclFloat, 0, none, NULL);
    SAME(Scatter, &data, &data, 1, ncclFloat, 0, none, NULL);
    SAME(Send, &data, 1, ncclFloat, 0, none, NULL);
    SAME(Recv, &data, 1, ncclFloat, 0, none, NULL);
    SAME(PutSignal, &data, 1, ncclFloat, 0, NULL, 0, 0, 0, 0, none, NULL);
    SAME(Signal, 0, 0, 0, 0, none, NULL);
    SAME(WaitSignal, 1, &signal, none, NULL);
    SAME(GroupEnd);
    SAME(GroupSimulateEnd, NULL);
    SAME(ParamBind, NULL, "NCCL_DEBUG");
    SAME(ParamGetI8, NULL, NULL);
    SAME(ParamGetI16, NULL, NULL);
    SAME(ParamGetI32, NULL, NULL);
    SAME(ParamGetI64, NULL, NULL);
    SAME(ParamGetU8, NULL, NULL);
    SAME(ParamGetU16, NULL, NULL);
    SAME(ParamGetU32, NULL, NULL);
    SAME(ParamGetU64, NULL, NULL);
    SAME(ParamGetStr, NULL, NULL);
    SAME(ParamGet, NULL, NULL, 0, NULL);
    SAME(ParamGetParameter, NULL, NULL, NULL);
    SAME(ParamGetAllParameterKeys, NULL, NULL);
}
