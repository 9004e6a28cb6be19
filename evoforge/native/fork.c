// What a process that was forked, and not started by launch.c, needs to confine itself; a library for Python.
#include "confine.h"

// Dies with the thread that forked it, or at once if that is gone; `parent` is who it was.
void evo_die_with(pid_t parent) {
    die_with_parent();
    if (getppid() != parent) _exit(0);
}

// Every layer that there is; returns in the first process inside. Only the calling thread may exist.
void evo_confine(const char* const* paths, const int* writing, int count) {
    be_expendable();
    int spaces = enter_namespaces();
    allow_only(paths, writing, count);
    if (spaces) drop_capabilities();
    refuse_calls();
    limit(RLIMIT_CORE, 0);
}
