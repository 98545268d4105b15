/* How checks fail, how ranks meet, and elements of every type. */
#define _GNU_SOURCE
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void fail(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n  last error: %s\n", ncclGetLastError(NULL));
    exit(1);
}

void check_equal(const char *file, int line, const char *what, long long actual, long long wanted) {
    if (actual != wanted) fail(file, line, "%s is %lld, not %lld", what, actual, wanted);
}

void check_says(const char *file, int line, const char *text, const char *part) {
    if (text == NULL || strstr(text, part) == NULL) fail(file, line, "\"%s\" does not say \"%s\"", text, part);
}

void check_code(const char *file, int line, const char *call, ncclResult_t code, ncclResult_t wanted, const char *text) {
    if (code != wanted) fail(file, line, "%s returned %d (%s), not %d", call, code, ncclGetErrorString(code), wanted);
    if (wanted != ncclSuccess) check_says(file, line, ncclGetLastError(NULL), text);
}

void pause_briefly(void) {
    const struct timespec a_millisecond = {0, 1000000};
    nanosleep(&a_millisecond, NULL);
}

static void path_of(const struct job *job, const char *name, int rank, char *path, size_t size) {
    snprintf(path, size, "%s/%s.%d", job->folder, name, rank);
}

/* Writes a file that is there as a whole or not at all. */
static void leave(const struct job *job, const char *name, const void *data, size_t bytes) {
    char path[4096], draft[4200];
    path_of(job, name, job->rank, path, sizeof path);
    snprintf(draft, sizeof draft, "%s.draft", path);
    FILE *file = fopen(draft, "w");
    CHECK(file != NULL);
    CHECK(fwrite(data, 1, bytes, file) == bytes);
    CHECK(fclose(file) == 0);
    CHECK(rename(draft, path) == 0);
}

void share(const struct job *job, const char *name, void *data, size_t bytes) {
    if (job->rank == 0) {
        leave(job, name, data, bytes);
        return;
    }
    char path[4096];
    path_of(job, name, 0, path, sizeof path);
    FILE *file;
    while ((file = fopen(path, "r")) == NULL) pause_briefly();
    CHECK(fread(data, 1, bytes, file) == bytes);
    fclose(file);
}

ncclUniqueId share_id(const struct job *job, const char *name) {
    ncclUniqueId id;
    if (job->rank == 0) OK(ncclGetUniqueId(&id));
    share(job, name, &id, sizeof id);
    return id;
}

ncclComm_t join(const struct job *job, const char *name) {
    ncclComm_t comm;
    OK(ncclCommInitRank(&comm, job->world, share_id(job, name), job->rank));
    return comm;
}

void meet(const struct job *job, const char *name) {
    leave(job, name, "", 0);
    for (int rank = 0; rank < job->world; rank++) {
        char path[4096];
        path_of(job, name, rank, path, sizeof path);
        while (access(path, F_OK) != 0) pause_briefly();
    }
}

ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        OK(ncclCommGetAsyncError(comm, &state));
        pause_briefly();
    }
    return state;
}

size_t size_of_type(ncclDataType_t type) {
    static const size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return sizes[type];
}

int is_integer(ncclDataType_t type) {
    return type <= ncclUint64;
}

/* Widths of a small floating-point type: exponent and mantissa, or 0 where it is none. */
static int small_float(ncclDataType_t type, int *mantissa) {
    switch (type) {
        case ncclFloat16: *mantissa = 10; return 5;
        case ncclBfloat16: *mantissa = 7; return 8;
        case ncclFloat8e4m3: *mantissa = 3; return 4;
        case ncclFloat8e5m2: *mantissa = 2; return 5;
        default: return 0;
    }
}

/* The bits of a value that the type holds exactly and as a normal number. */
static unsigned to_bits(double value, int exponent_bits, int mantissa_bits) {
    if (value == 0) return 0;
    int exponent;
    double fraction = frexp(fabs(value), &exponent);
    double mantissa = ldexp(2 * fraction - 1, mantissa_bits);
    CHECK(mantissa == floor(mantissa));
    unsigned biased = (unsigned)(exponent - 1 + (1 << (exponent_bits - 1)) - 1);
    unsigned sign = value < 0;
    return sign << (exponent_bits + mantissa_bits) | biased << mantissa_bits | (unsigned)mantissa;
}

static double from_bits(unsigned bits, int exponent_bits, int mantissa_bits) {
    int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    double mantissa = (double)(bits & ((1u << mantissa_bits) - 1));
    int is_normal = exponent != 0;
    double value = ldexp(mantissa + (is_normal ? 1 << mantissa_bits : 0),
                         (is_normal ? exponent : 1) - ((1 << (exponent_bits - 1)) - 1) - mantissa_bits);
    return bits >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}

/* Elements need not be aligned: they are copied. */
#define PUT(type_of_c) { type_of_c element = (type_of_c)value; memcpy(place, &element, sizeof element); break; }
#define GET(type_of_c) { type_of_c element; memcpy(&element, place, sizeof element); return (double)element; }

void set(void *data, size_t at, ncclDataType_t type, double value) {
    char *place = (char *)data + at * size_of_type(type);
    int mantissa, exponent = small_float(type, &mantissa);
    if (exponent != 0) {
        /* The low bytes come first. */
        uint16_t bits = (uint16_t)to_bits(value, exponent, mantissa);
        memcpy(place, &bits, size_of_type(type));
        return;
    }
    switch (type) {
        case ncclInt8: PUT(int8_t)
        case ncclUint8: PUT(uint8_t)
        case ncclInt32: PUT(int32_t)
        case ncclUint32: PUT(uint32_t)
        case ncclInt64: PUT(int64_t)
        case ncclUint64: PUT(uint64_t)
        case ncclFloat32: PUT(float)
        case ncclFloat64: PUT(double)
        default: fail(__FILE__, __LINE__, "type %d", type);
    }
}

double value_at(const void *data, size_t at, ncclDataType_t type) {
    const char *place = (const char *)data + at * size_of_type(type);
    int mantissa, exponent = small_float(type, &mantissa);
    if (exponent != 0) {
        uint16_t bits = 0;
        memcpy(&bits, place, size_of_type(type));
        return from_bits(bits, exponent, mantissa);
    }
    switch (type) {
        case ncclInt8: GET(int8_t)
        case ncclUint8: GET(uint8_t)
        case ncclInt32: GET(int32_t)
        case ncclUint32: GET(uint32_t)
        case ncclInt64: GET(int64_t)
        case ncclUint64: GET(uint64_t)
        case ncclFloat32: GET(float)
        case ncclFloat64: GET(double)
        default: fail(__FILE__, __LINE__, "type %d", type);
    }
}
