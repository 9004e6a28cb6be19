// What a process that was forked, and not started by launch.c, needs to confine itself; a library for Python.
#include "confine.h"

#define SHARED_MEMORY "/dev/shm"
enum { MOST_PATHS = 64 };

// Dies with the thread that forked it, or at once if that is gone; `parent` is who it was.
void evo_die_with(pid_t parent) {
    die_with_parent();
    if (getppid() != parent) _exit(0);
}

// Every layer that there is; returns in the first process inside. Only the calling thread may exist.
// Shared memory is one's own; where that cannot be had, what others have there is not to be written.
void evo_confine(const char* const* paths, const int* writing, int count) {
    be_expendable();
    int spaces = enter_namespaces();
    int own = spaces && !mount("none", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=256m,mode=1777");
    int allowed[MOST_PATHS];
    if (count > MOST_PATHS) _exit(125);
    for (int i = 0; i < count; i++) allowed[i] = writing[i] && (own || strcmp(paths[i], SHARED_MEMORY));
    allow_only(paths, allowed, count);
    if (spaces) drop_capabilities();
    refuse_calls();
    limit(RLIMIT_CORE, 0);
}
