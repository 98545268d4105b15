/* A rank of one trial: `conformance TRIAL RANK WORLD FOLDER`. Ends with status 0 if every check held. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL(name) {#name, name}

static const struct {
    const char *name;
    void (*run)(const struct job *job);
} trials[] = {
    TRIAL(collectives),
    TRIAL(in_place),
    TRIAL(operations),
    TRIAL(messages),
    TRIAL(random_calls),
    TRIAL(groups),
    TRIAL(group_mistakes),
    TRIAL(several_communicators),
    TRIAL(several_ranks_of_one_process),
    TRIAL(initialisation),
    TRIAL(fixed_address),
    TRIAL(nonblocking),
    TRIAL(split),
    TRIAL(shrink),
    TRIAL(farewell),
    TRIAL(farewell_in_any_order),
    TRIAL(nothing_stays),
    TRIAL(lost_peer),
    TRIAL(abort_ends_a_wait),
    TRIAL(revocation),
    TRIAL(wrong_arguments),
    TRIAL(different_counts),
    TRIAL(pointers),
    TRIAL(fork_after_init),
    TRIAL(two_threads),
    TRIAL(twins),
    TRIAL(asking),
    TRIAL(memory),
    TRIAL(parameters),
    TRIAL(device_interface),
};

int main(int count, char **arguments) {
    const size_t known = sizeof trials / sizeof trials[0];
    if (count == 1) {
        for (size_t at = 0; at < known; at++) puts(trials[at].name);
        return 0;
    }
    if (count != 5) return 2;
    struct job job = {atoi(arguments[2]), atoi(arguments[3]), arguments[4]};
    for (size_t at = 0; at < known; at++) {
        if (strcmp(trials[at].name, arguments[1]) == 0) {
            trials[at].run(&job);
            return 0;
        }
    }
    fprintf(stderr, "%s is no trial\n", arguments[1]);
    return 2;
}
