/* What every file of the test program shares: who this rank is, how ranks meet, how a check fails, and
 * elements of every type. */
#ifndef CHECK_H
#define CHECK_H

#include <nccl.h>
#include <stddef.h>

/* This process's part of a trial. */
struct job {
    int rank;
    int world;
    /* Where the ranks of the trial leave files for each other. */
    const char *folder;
};

/* Says what went wrong, with the library's last error, and ends the process with status 1. */
void fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

#define CHECK(condition) ((condition) ? (void)0 : fail(__FILE__, __LINE__, "%s does not hold", #condition))
#define EQUAL(actual, wanted) check_equal(__FILE__, __LINE__, #actual, (long long)(actual), (long long)(wanted))
/* A call that must succeed. */
#define OK(call) check_code(__FILE__, __LINE__, #call, (call), ncclSuccess, "")
/* A call that must be refused, with a last error that says so. */
#define REFUSED(code, text, call) check_code(__FILE__, __LINE__, #call, (call), code, text)
/* A text that must hold another one. */
#define SAYS(text, part) check_says(__FILE__, __LINE__, (text), (part))

void check_equal(const char *file, int line, const char *what, long long actual, long long wanted);
void check_code(const char *file, int line, const char *call, ncclResult_t code, ncclResult_t wanted, const char *text);
void check_says(const char *file, int line, const char *text, const char *part);

/* Brings what rank 0 has to all ranks. */
void share(const struct job *job, const char *name, void *data, size_t bytes);
/* The id that rank 0 makes under a name, everywhere. */
ncclUniqueId share_id(const struct job *job, const char *name);
/* A new communicator of all ranks. */
ncclComm_t join(const struct job *job, const char *name);
/* Waits until every rank has come here, without the library. */
void meet(const struct job *job, const char *name);
/* Waits until a communicator has nothing in progress, and returns what became of it. */
ncclResult_t settled(ncclComm_t comm);
/* Waits for a moment, between two looks. */
void pause_briefly(void);

/* Elements. Values are small multiples of a quarter, which every type of floating point holds exactly. */
size_t size_of_type(ncclDataType_t type);
int is_integer(ncclDataType_t type);
void set(void *data, size_t at, ncclDataType_t type, double value);
double value_at(const void *data, size_t at, ncclDataType_t type);

/* The trials, one file for each kind. */
void collectives(const struct job *job);
void in_place(const struct job *job);
void operations(const struct job *job);
void messages(const struct job *job);
void random_calls(const struct job *job);
void groups(const struct job *job);
void group_mistakes(const struct job *job);
void several_communicators(const struct job *job);
void several_ranks_of_one_process(const struct job *job);
void initialisation(const struct job *job);
void fixed_address(const struct job *job);
void nonblocking(const struct job *job);
void split(const struct job *job);
void shrink(const struct job *job);
void farewell(const struct job *job);
void farewell_in_any_order(const struct job *job);
void nothing_stays(const struct job *job);
void lost_peer(const struct job *job);
void abort_ends_a_wait(const struct job *job);
void revocation(const struct job *job);
void wrong_arguments(const struct job *job);
void different_counts(const struct job *job);
void pointers(const struct job *job);
void fork_after_init(const struct job *job);
void two_threads(const struct job *job);
void twins(const struct job *job);
void asking(const struct job *job);
void memory(const struct job *job);
void parameters(const struct job *job);
void device_interface(const struct job *job);

#endif
