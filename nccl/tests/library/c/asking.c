/* What can be asked: versions, texts, memory, windows, settings; and the device interface, which refuses. */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>
#include <string.h>

void asking(const struct job *job) {
    int version;
    OK(ncclGetVersion(&version));
    EQUAL(version, NCCL_VERSION_CODE);
    OK(pncclGetVersion(&version));
    EQUAL(version, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
    for (int code = 0; code < ncclNumResults; code++) {
        const char *text = ncclGetErrorString((ncclResult_t)code);
        CHECK(text != NULL && text[0] != 0 && strcmp(text, pncclGetErrorString((ncclResult_t)code)) == 0);
        for (int other = 0; other < code; other++) CHECK(strcmp(text, ncclGetErrorString((ncclResult_t)other)) != 0);
    }
    SAYS(ncclGetErrorString(ncclSuccess), "no error");
    SAYS(ncclGetErrorString((ncclResult_t)77), "unknown");
    SAYS(ncclGetErrorString((ncclResult_t)-1), "unknown");
    ncclResetDebugInit();
    pncclResetDebugInit();
    /* The last error is that of the communicator which is asked for, or of the process. */
    ncclComm_t comm = join(job, "asking"), other = join(job, "asking_other");
    int number;
    REFUSED(ncclInvalidArgument, "count is null", ncclCommCount(comm, NULL));
    REFUSED(ncclInvalidArgument, "rank is null", ncclCommUserRank(other, NULL));
    SAYS(ncclGetLastError(comm), "count is null");
    SAYS(pncclGetLastError(other), "rank is null");
    SAYS(ncclGetLastError(NULL), "rank is null");
    SAYS(pncclGetLastError(NULL), "ncclCommUserRank");
    OK(ncclCommCount(comm, &number));
    uint64_t value;
    OK(ncclCommMemStats(comm, ncclStatGpuMemSuspend, &value));
    EQUAL(value, 0);
    OK(ncclCommMemStats(comm, ncclStatGpuMemPersist, &value));
    OK(pncclCommMemStats(comm, ncclStatGpuMemTotal, &value));
    CHECK(value > 0 || job->world == 1);
    OK(ncclCommDestroy(comm));
    OK(ncclCommDestroy(other));
}

void memory(const struct job *job) {
    ncclComm_t comm = join(job, "memory");
    const size_t sizes[] = {0, 1, 4096, 3 << 20};
    for (int at = 0; at < 4; at++) {
        void *data = NULL, *other = NULL, *handle = NULL, *found = NULL;
        OK(ncclMemAlloc(&data, sizes[at]));
        OK(pncclMemAlloc(&other, sizes[at]));
        CHECK(data != NULL && other != NULL && data != other);
        EQUAL((uintptr_t)data % NCCL_WIN_REQUIRED_ALIGNMENT, 0);
        memset(data, 1, sizes[at]);
        memset(other, 2, sizes[at]);
        if (sizes[at] > 0) {
            ncclWindow_t window = NULL;
            OK(ncclCommRegister(comm, data, sizes[at], &handle));
            CHECK(handle != NULL);
            OK(ncclCommWindowRegister(comm, data, sizes[at], &window, NCCL_WIN_COLL_SYMMETRIC));
            CHECK(window != NULL);
            OK(ncclWinGetUserPtr(comm, window, &found));
            CHECK(found == data);
            OK(pncclWinGetUserPtr(comm, window, &found));
            CHECK(found == data);
            OK(ncclAllReduce(data, other, sizes[at], ncclInt8, ncclSum, comm, NULL));
            EQUAL(((char *)other)[sizes[at] - 1], job->world);
            OK(ncclCommWindowDeregister(comm, window));
            REFUSED(ncclInvalidArgument, "is no window", ncclCommWindowDeregister(comm, window));
            OK(ncclCommDeregister(comm, handle));
            REFUSED(ncclInvalidArgument, "is no registered buffer", ncclCommDeregister(comm, handle));
            OK(pncclCommRegister(comm, data, sizes[at], &handle));
            OK(pncclCommDeregister(comm, handle));
            OK(pncclCommWindowRegister(comm, data, sizes[at], &window, NCCL_WIN_DEFAULT));
            OK(pncclCommWindowDeregister(comm, window));
        }
        OK(ncclMemFree(data));
        REFUSED(ncclInvalidArgument, "was freed before", ncclMemFree(data));
        OK(pncclMemFree(other));
    }
    OK(ncclMemFree(NULL));
    OK(ncclCommDeregister(comm, NULL));
    OK(ncclCommWindowDeregister(comm, NULL));
    void *data;
    REFUSED(ncclInvalidArgument, "more than memory can hold", ncclMemAlloc(&data, SIZE_MAX - 10));
    CHECK(data == NULL);
    REFUSED(ncclSystemError, "there is no memory", ncclMemAlloc(&data, (size_t)1 << 62));
    OK(ncclCommDestroy(comm));
}

void parameters(const struct job *job) {
    (void)job;
    CHECK(setenv("NCCL_BUFFSIZE", "1048576", 1) == 0);
    CHECK(setenv("RINGSMITH_STALL_S", "200", 1) == 0);
    ncclParamHandle_t buffer, stall, unset;
    OK(ncclParamBind(&buffer, "NCCL_BUFFSIZE"));
    OK(pncclParamBind(&stall, "RINGSMITH_STALL_S"));
    OK(ncclParamBind(&unset, "RINGSMITH_TIMEOUT_S"));
    int8_t i8; int16_t i16; int32_t i32; int64_t i64;
    uint8_t u8; uint16_t u16; uint32_t u32; uint64_t u64;
    OK(ncclParamGetI16(stall, &i16)); EQUAL(i16, 200);
    OK(ncclParamGetI32(buffer, &i32)); EQUAL(i32, 1048576);
    OK(ncclParamGetI64(buffer, &i64)); EQUAL(i64, 1048576);
    OK(ncclParamGetU8(stall, &u8)); EQUAL(u8, 200);
    OK(ncclParamGetU16(stall, &u16)); EQUAL(u16, 200);
    OK(ncclParamGetU32(buffer, &u32)); EQUAL(u32, 1048576);
    OK(ncclParamGetU64(buffer, &u64)); EQUAL(u64, 1048576);
    OK(pncclParamGetU64(stall, &u64)); EQUAL(u64, 200);
    REFUSED(ncclInvalidArgument, "does not fit", ncclParamGetI8(stall, &i8));
    REFUSED(ncclInvalidArgument, "does not fit", ncclParamGetI16(buffer, &i16));
    REFUSED(ncclInvalidArgument, "is no number", ncclParamGetI32(unset, &i32));
    REFUSED(ncclInvalidArgument, "out is null", ncclParamGetI32(stall, NULL));
    REFUSED(ncclInvalidArgument, "ncclParamBind gives one", ncclParamGetI32(NULL, &i32));
    const char *text;
    OK(ncclParamGetStr(buffer, &text));
    CHECK(strcmp(text, "1048576") == 0);
    OK(pncclParamGetStr(unset, &text));
    CHECK(text[0] == 0);
    char room[8];
    int length = -1;
    OK(ncclParamGet(stall, room, sizeof room, &length));
    EQUAL(length, 3);
    CHECK(memcmp(room, "200", 3) == 0);
    REFUSED(ncclInvalidArgument, "room for 2", ncclParamGet(stall, room, 2, &length));
    REFUSED(ncclInvalidArgument, "room for -1", ncclParamGet(stall, room, -1, &length));
    OK(ncclParamGetParameter("RINGSMITH_STALL_S", &text, &length));
    EQUAL(length, 3);
    CHECK(strcmp(text, "200") == 0);
    REFUSED(ncclInvalidArgument, "NCCL_NONSENSE is no setting", ncclParamGetParameter("NCCL_NONSENSE", &text, &length));
    REFUSED(ncclInvalidArgument, "NCCL_NONSENSE is no setting", ncclParamBind(&unset, "NCCL_NONSENSE"));
    REFUSED(ncclInvalidArgument, "key is null", ncclParamBind(&unset, NULL));
    REFUSED(ncclInvalidArgument, "out is null", ncclParamBind(NULL, "NCCL_BUFFSIZE"));
    /* Secrets are nobody's business. */
    REFUSED(ncclInvalidArgument, "is no setting", ncclParamBind(&unset, "RINGSMITH_JOB_SECRET"));
    const char **keys;
    int found = 0;
    OK(ncclParamGetAllParameterKeys(&keys, &length));
    for (int at = 0; at < length; at++) {
        found += strcmp(keys[at], "NCCL_BUFFSIZE") == 0 || strcmp(keys[at], "RINGSMITH_STALL_S") == 0;
        int bytes;
        OK(pncclParamGetParameter(keys[at], &text, &bytes));
    }
    EQUAL(found, 2);
    ncclParamDumpAll();
    pncclParamDumpAll();
}

/* The host functions of NCCL's device interface, as far as their arguments matter to a refusal. */
typedef struct { int ranks, rank, stride; } team;
extern ncclResult_t ncclCommQueryProperties(ncclComm_t comm, void *properties);
extern ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements, void *device_comm);
extern ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *device_comm);
extern ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **pointer);
extern ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void **pointer);
extern ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **pointer);
extern ncclResult_t ncclLLA2ACreateRequirement(int blocks, int slots, void *handle, void *requirements);
extern ncclResult_t ncclLsaBarrierCreateRequirement(team of, int barriers, void *handle, void *requirements);
extern team ncclTeamWorld(ncclComm_t comm);
extern team ncclTeamLsa(ncclComm_t comm);
extern team ncclTeamRail(ncclComm_t comm);

void device_interface(const struct job *job) {
    ncclComm_t comm = join(job, "device_interface");
    char room[1024];
    void *pointer;
    const char *missing = "the device interface is not there";
    REFUSED(ncclInvalidUsage, missing, ncclCommQueryProperties(comm, room));
    REFUSED(ncclInvalidUsage, missing, ncclDevCommCreate(comm, room, room));
    REFUSED(ncclInvalidUsage, missing, ncclDevCommDestroy(comm, room));
    REFUSED(ncclInvalidUsage, missing, ncclGetLsaMultimemDevicePointer(NULL, 0, &pointer));
    REFUSED(ncclInvalidUsage, missing, ncclGetLsaDevicePointer(NULL, 0, 0, &pointer));
    REFUSED(ncclInvalidUsage, missing, ncclGetPeerDevicePointer(NULL, 0, 0, &pointer));
    REFUSED(ncclInvalidUsage, missing, ncclLLA2ACreateRequirement(1, 1, room, room));
    REFUSED(ncclInvalidUsage, missing, ncclLsaBarrierCreateRequirement((team){0, 0, 0}, 1, room, room));
    EQUAL(ncclTeamWorld(comm).ranks, 0);
    EQUAL(ncclTeamLsa(comm).ranks, 0);
    EQUAL(ncclTeamRail(comm).ranks, 0);
    SAYS(ncclGetLastError(NULL), "ncclTeamRail");
    OK(ncclCommDestroy(comm));
}
