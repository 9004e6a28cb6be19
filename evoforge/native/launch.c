// Runs one program confined: evoforge starts compilers and Python workers through it, because they read
// or run what others wrote.
// usage: launch [-s] [-r PATH]… [-w PATH]… [-t CPU_SECONDS] [-m MEMORY_BYTES] [-f FILE_BYTES] [-k FD] [-q]
// -- PROGRAM ARGUMENTS…
// -s takes every layer that there is: namespaces, landlock (reads only below the -r and -w paths, writes below
// the -w ones) and a filter. -k keeps one inherited descriptor beside 0–2. -q prints the layers reached, one
// a line, and runs nothing. The program dies with the thread that started it and cannot gain privileges.
#include "confine.h"

int main(int argc, char** argv) {
    const char* paths[64];
    int kept = 2, confined = 0, asked = 0, n_paths = 0, writing[64];
    uint64_t cpu_seconds = 0, memory = 0, file = 0;
    die_with_parent();
    for (int option; (option = getopt(argc, argv, "+sqr:w:t:m:f:k:")) >= 0;) {
        if (option == 's') confined = 1;
        else if (option == 'q') asked = 1;
        else if ((option == 'r' || option == 'w') && n_paths < 64) writing[n_paths] = option == 'w', paths[n_paths++] = optarg;
        else if (option == 't') cpu_seconds = strtoull(optarg, NULL, 10);
        else if (option == 'm') memory = strtoull(optarg, NULL, 10);
        else if (option == 'f') file = strtoull(optarg, NULL, 10);
        else if (option == 'k') kept = atoi(optarg);
        else return 125;
    }
    if (optind >= argc && !asked) return 125;
    if (kept > 3) close_range(3, kept - 1, 0);
    close_range(kept < 3 ? 3 : kept + 1, ~0u, 0);
    be_expendable();
    int spaces = 0, locked = 0, filtered = 0;
    if (confined) {
        spaces = enter_namespaces();
        if (asked && spaces) spaces = mount("none", "/tmp", "tmpfs", 0, NULL) == 0;
        locked = allow_only(paths, writing, n_paths);
        if (spaces) drop_capabilities();
        filtered = refuse_calls();
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (asked) return printf("%s%s%s", spaces ? "namespaces\n" : "", locked ? "landlock\n" : "", filtered ? "seccomp\n" : "") < 0;
    limit(RLIMIT_CORE, 0);
    if (cpu_seconds) limit(RLIMIT_CPU, cpu_seconds);
    if (memory) limit(RLIMIT_AS, memory);
    if (file) limit(RLIMIT_FSIZE, file);
    execv(argv[optind], argv + optind);
    perror(argv[optind]);
    return 126;
}
