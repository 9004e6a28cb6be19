// Runs one program under limits: evoforge starts compilers and Python workers through it, because they
// read untrusted text. usage: launch [-t CPU_SECONDS] [-m MEMORY_BYTES] [-f FILE_BYTES] [-c CPUS] [-k FD]
// -- PROGRAM ARGUMENTS…
// CPUS is a comma list; -k keeps one inherited descriptor beside 0–2. The program dies with the thread
// that started it and cannot gain privileges.
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

static void pin(char* text) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    while (*text) {
        CPU_SET(strtoul(text, &text, 10), &cpus);
        if (*text == ',') text++;
    }
    sched_setaffinity(0, sizeof cpus, &cpus);
}

int main(int argc, char** argv) {
    int kept = 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit(RLIMIT_CORE, "0");
    for (int option; (option = getopt(argc, argv, "+t:m:f:c:k:")) >= 0;) {
        if (option == 't') limit(RLIMIT_CPU, optarg);
        else if (option == 'm') limit(RLIMIT_AS, optarg);
        else if (option == 'f') limit(RLIMIT_FSIZE, optarg);
        else if (option == 'c') pin(optarg);
        else if (option == 'k') kept = atoi(optarg);
        else return 125;
    }
    if (optind >= argc) return 125;
    if (kept > 3) close_range(3, kept - 1, 0);
    close_range(kept < 3 ? 3 : kept + 1, ~0u, 0);
    execv(argv[optind], argv + optind);
    perror(argv[optind]);
    return 126;
}
