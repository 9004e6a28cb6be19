// Runs one program under limits: evoforge starts compilers through it, because they read untrusted
// text. usage: launch CPU_SECONDS MEMORY_BYTES FILE_BYTES CPUS PROGRAM ARGUMENTS…
// CPUS is a comma list, or "-" for no pinning. The program dies with evoforge, gets no inherited
// descriptors beyond 0–2 and cannot gain privileges.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static void limit(int what, const char* text) {
    struct rlimit value;
    value.rlim_cur = value.rlim_max = strtoull(text, NULL, 10);
    setrlimit(what, &value);
}

int main(int argc, char** argv) {
    if (argc < 6) return 125;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit(RLIMIT_CPU, argv[1]);
    limit(RLIMIT_AS, argv[2]);
    limit(RLIMIT_FSIZE, argv[3]);
    limit(RLIMIT_CORE, "0");
    if (argv[4][0] != '-') {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        for (char* text = argv[4]; *text;) {
            CPU_SET(strtoul(text, &text, 10), &cpus);
            if (*text == ',') text++;
        }
        sched_setaffinity(0, sizeof cpus, &cpus);
    }
    close_range(3, ~0u, 0);
    execv(argv[5], argv + 5);
    perror(argv[5]);
    return 126;
}
