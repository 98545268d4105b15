/* nccl.h of Ringsmith: what a C or C++ program includes to call libnccl.so.2.
 *
 * Names, numbers, structures and prototypes are those of NCCL 2.30, so a program that was written for NCCL
 * compiles against this file, and one that was compiled against NVIDIA's file runs with this library.
 * The version below is lower: it is the last whose host functions all do their work here. A program that asks
 * it before it uses something newer gets the right answer.
 *
 * Every function has a twin whose name begins with p and that does the same: a tool that puts its own ncclX in
 * front calls pncclX behind. Functions return an ncclResult_t; ncclGetLastError has the whole story.
 * docs/for-nccl-users.md says what differs from NCCL. The host functions of NCCL's device interface are
 * exported and refuse; they are not declared here.
 *
 * nccl/src/abi.rs holds the same numbers for the library; a test compares the two. */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* CUDA's headers where there are any, since programs expect nccl.h to bring them. On host memory streams do
 * not matter, and a program needs no more of CUDA than this type. */
#if defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#define RINGSMITH_HAS_CUDA_HEADERS
#endif
#endif
#ifdef RINGSMITH_HAS_CUDA_HEADERS
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#if CUDART_VERSION >= 11000
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && CUDART_VERSION >= 11080
#include <cuda_fp8.h>
#endif
#else
typedef struct CUstream_st *cudaStream_t;
#endif

/* The version of NCCL whose features are here: major * 10000 + minor * 100 + patch. */
#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
/* Up to 2.8 the major version counted thousands. */
#define NCCL_VERSION(X, Y, Z) \
    (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))
/* Says that this file is Ringsmith's. */
#define RINGSMITH_NCCL 1

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types and numbers ---- */

/* A rank of a communicator. Its memory is never used again: a handle that was destroyed is known as such. */
typedef struct ncclComm *ncclComm_t;
#define NCCL_COMM_NULL NULL

/* A buffer that all ranks have made known to each other. */
typedef struct ncclWindow_vidmem *ncclWindow_t;

/* What ranks need to find each other. One rank makes it, the program brings it to the others. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1, /* the CUDA driver failed */
    ncclSystemError = 2,        /* the operating system, or a connection */
    ncclInternalError = 3,      /* a bug of the library */
    ncclInvalidArgument = 4,    /* an argument is wrong by itself */
    ncclInvalidUsage = 5,       /* the call is wrong here and now */
    ncclRemoteError = 6,        /* another rank failed, left or is late */
    ncclInProgress = 7,         /* begun; ncclCommGetAsyncError says when it is done */
    ncclTimeout = 8,            /* not returned by Ringsmith: a late rank is ncclRemoteError */
    ncclNumResults = 9
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

/* Operations from ncclNumOps on are made by ncclRedOpCreatePreMulSum. The largest says how wide the type is. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

/* Where the factor of a pre-multiplied sum lies. On host memory either is read when the operation is made. */
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* "Not given", in configurations. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f
/* The colour of a rank that gets no communicator from ncclCommSplit. */
#define NCCL_SPLIT_NOCOLOR -1

/* Flags of windows. On host memory they are accepted and change nothing. */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* Of ncclCommShrink: the ranks that stay are well, or the old communicator is broken and is ended first. */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
/* Of ncclCommRevoke and ncclCommSuspend. */
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01

/* Wishes for a communicator. Begin with NCCL_CONFIG_INITIALIZER. Heeded here: blocking, minCTAs and maxCTAs
 * (as channels) and netName; the others are accepted. Shorter structures of earlier versions and longer ones
 * of later versions are understood. */
typedef struct ncclConfig_v23000 {
    /* Set by the initialiser, and by nobody else. */
    size_t size;
    unsigned int magic;
    unsigned int version;
    /* Yours. */
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
    int graphUsageMode;
    int numRmaCtx;
    int maxP2pPeers;
    int graphStreamOrdering;
} ncclConfig_t;

#define NCCL_API_MAGIC 0xcafebeef
#define NCCL_CONFIG_INITIALIZER { \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
    NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT }

/* What ncclGroupSimulateEnd answers: microseconds, by the planner's model. */
typedef struct ncclSimInfo_v22200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

/* What ncclCommMemStats can be asked. */
typedef enum {
    ncclStatGpuMemSuspend = 0,   /* bytes that suspending would free: none on host memory */
    ncclStatGpuMemSuspended = 1, /* 1 while suspended */
    ncclStatGpuMemPersist = 2,   /* bytes that stay */
    ncclStatGpuMemTotal = 3      /* bytes in all */
} ncclCommMemStat_t;

/* Signals to wait for. */
typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

/* A setting, bound by its name. */
typedef struct ncclParamHandle *ncclParamHandle_t;

/* Declares a function and its twin. */
#define RINGSMITH_BOTH(type, name, arguments) \
    type nccl##name arguments; \
    type pnccl##name arguments
#define RINGSMITH_CALL(name, arguments) RINGSMITH_BOTH(ncclResult_t, name, arguments)

/* ---- The library ---- */

/* The version above. */
RINGSMITH_CALL(GetVersion, (int *version));
/* A few words on a result code. */
RINGSMITH_BOTH(const char *, GetErrorString, (ncclResult_t result));
/* The last failure of a communicator, or of the process (NULL): rank, peer, operation, its number, and what to
 * do. Valid until the thread asks again. */
RINGSMITH_BOTH(const char *, GetLastError, (ncclComm_t comm));
/* Does nothing: settings of the log are read once. */
RINGSMITH_BOTH(void, ResetDebugInit, (void));

/* Memory that ranks can use, aligned for windows. */
RINGSMITH_CALL(MemAlloc, (void **ptr, size_t size));
RINGSMITH_CALL(MemFree, (void *ptr));

/* ---- Communicators ---- */

/* Makes an id; the calling process then helps the ranks to find each other. One rank calls this, once. */
RINGSMITH_CALL(GetUniqueId, (ncclUniqueId *uniqueId));
/* Joins as a rank of an id. Returns when all ranks have joined. */
RINGSMITH_CALL(CommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank));
RINGSMITH_CALL(
    CommInitRankConfig, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config));
/* The same with several ids, of which the first is used. */
RINGSMITH_CALL(CommInitRankScalable, (ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId *commIds, ncclConfig_t *config));
/* All ranks of a communicator in this process; a device each, 0 to ndev - 1 without a list. */
RINGSMITH_CALL(CommInitAll, (ncclComm_t *comm, int ndev, const int *devlist));
/* Leaves together with all ranks. */
RINGSMITH_CALL(CommFinalize, (ncclComm_t comm));
/* Lets the communicator go. The handle is of no use afterwards. */
RINGSMITH_CALL(CommDestroy, (ncclComm_t comm));
/* Ends what is under way on every rank, and lets the communicator go. */
RINGSMITH_CALL(CommAbort, (ncclComm_t comm));
/* Ends what is under way on every rank; the handle stays, for ncclCommDestroy. */
RINGSMITH_CALL(CommRevoke, (ncclComm_t comm, int revokeFlags));
/* Ranks that give one colour become a communicator, in the order of their keys. Every rank calls it. */
RINGSMITH_CALL(
    CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config));
/* A communicator without some of the ranks. Those that stay call it, the others do not. */
RINGSMITH_CALL(CommShrink, (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                            ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags));
/* Refused: make another communicator. */
RINGSMITH_CALL(CommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId));
RINGSMITH_CALL(CommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
                          ncclComm_t *newcomm, ncclConfig_t *config));
/* Refuses calls until it is resumed; on host memory nothing is freed. */
RINGSMITH_CALL(CommSuspend, (ncclComm_t comm, int flags));
RINGSMITH_CALL(CommResume, (ncclComm_t comm));

/* How the communicator is: ncclInProgress while something runs in the background, then what came of it. */
RINGSMITH_CALL(CommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError));
RINGSMITH_CALL(CommCount, (const ncclComm_t comm, int *count));
RINGSMITH_CALL(CommCuDevice, (const ncclComm_t comm, int *device));
RINGSMITH_CALL(CommUserRank, (const ncclComm_t comm, int *rank));
RINGSMITH_CALL(CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value));

/* Buffers that will be used often. On host memory this changes nothing. */
RINGSMITH_CALL(CommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle));
RINGSMITH_CALL(CommDeregister, (const ncclComm_t comm, void *handle));
RINGSMITH_CALL(
    CommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags));
RINGSMITH_CALL(CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));
RINGSMITH_CALL(WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr));

/* ---- Collectives ----
 * Every rank makes the same calls in the same order. Counts are elements. Input and output are apart, or lie as
 * the comment says for "in place". */

/* An operation: every input times a factor, then the sum. */
RINGSMITH_CALL(RedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm));
RINGSMITH_CALL(RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* The reduction of all inputs, at the root. In place: one buffer. */
RINGSMITH_CALL(Reduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream));
/* The root's input everywhere. In place: one buffer, which ncclBcast always has. */
RINGSMITH_CALL(Bcast, (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream));
RINGSMITH_CALL(Broadcast, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream));
/* The reduction of all inputs, everywhere. In place: one buffer. */
RINGSMITH_CALL(AllReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
/* Block r of the reduction at rank r. In place: the output is block r of the input. */
RINGSMITH_CALL(ReduceScatter, (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
/* All inputs, in the order of ranks, everywhere. In place: the input is block r of the output. */
RINGSMITH_CALL(AllGather, (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream));
/* Block p of rank r's input becomes block r of rank p's output. */
RINGSMITH_CALL(AlltoAll, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream));
/* All inputs, in the order of ranks, at the root. In place: the root's input is its block of the output. */
RINGSMITH_CALL(Gather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream));
/* Block r of the root's input at rank r. In place: the root's output is its block of the input. */
RINGSMITH_CALL(Scatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream));

/* ---- Messages ----
 * A send and a receive match in the order of calls between two ranks. Those that depend on each other belong
 * into one group. */

RINGSMITH_CALL(Send, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream));
RINGSMITH_CALL(Recv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream));
/* One-sided: refused in this version. */
RINGSMITH_CALL(PutSignal, (const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                           ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                           unsigned int flags, ncclComm_t comm, cudaStream_t stream));
RINGSMITH_CALL(
    Signal, (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream));
RINGSMITH_CALL(
    WaitSignal, (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream));

/* ---- Groups ----
 * Calls between start and end are begun together, at the outermost end: several collectives, messages, and
 * initialisations, of one communicator or of several. A mistake inside keeps the whole group from beginning. */

RINGSMITH_CALL(GroupStart, (void));
RINGSMITH_CALL(GroupEnd, (void));
/* Ends a group without beginning it, and says what it should take. */
RINGSMITH_CALL(GroupSimulateEnd, (ncclSimInfo_t *simInfo));

/* ---- Settings ----
 * What the environment says, by NCCL's names and by Ringsmith's. */

RINGSMITH_CALL(ParamBind, (ncclParamHandle_t *out, const char *key));
RINGSMITH_CALL(ParamGetI8, (ncclParamHandle_t h, int8_t *out));
RINGSMITH_CALL(ParamGetI16, (ncclParamHandle_t h, int16_t *out));
RINGSMITH_CALL(ParamGetI32, (ncclParamHandle_t h, int32_t *out));
RINGSMITH_CALL(ParamGetI64, (ncclParamHandle_t h, int64_t *out));
RINGSMITH_CALL(ParamGetU8, (ncclParamHandle_t h, uint8_t *out));
RINGSMITH_CALL(ParamGetU16, (ncclParamHandle_t h, uint16_t *out));
RINGSMITH_CALL(ParamGetU32, (ncclParamHandle_t h, uint32_t *out));
RINGSMITH_CALL(ParamGetU64, (ncclParamHandle_t h, uint64_t *out));
/* The text, valid until the thread asks again. */
RINGSMITH_CALL(ParamGetStr, (ncclParamHandle_t h, const char **out));
/* The text without its closing zero, into maxLen bytes of the caller's. */
RINGSMITH_CALL(ParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len));
RINGSMITH_CALL(ParamGetParameter, (const char *key, const char **value, int *valueLen));
RINGSMITH_CALL(ParamGetAllParameterKeys, (const char ***table, int *tableLen));
/* Tells the log, subsystem ENV, what is set. */
RINGSMITH_BOTH(void, ParamDumpAll, (void));

#undef RINGSMITH_CALL
#undef RINGSMITH_BOTH

#ifdef __cplusplus
}
#endif

#endif
