// The layers with which runner.c and launch.c confine themselves: namespaces, landlock, capabilities, limits.
// Each says whether it was reached; what a layer needs from the kernel may be missing or forbidden.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, LANDLOCK_READ = 0xd, LANDLOCK_DEVICE = 0x8006, LANDLOCK_FILE = 0xc007 };

static inline void limit(int what, uint64_t value) {
    struct rlimit bound = {value, value};
    setrlimit(what, &bound);
}

static inline void die_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); }

static inline int write_file(const char* path, const char* text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int fine = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return fine;
}

// The first victim when the machine runs out of memory is this process, not the judge.
static inline void be_expendable(void) { write_file("/proc/self/oom_score_adj", "1000"); }

// Root becomes nobody, whose number of threads can be limited.
static inline void stop_being_root(void) {
    if (geteuid() != 0) return;
    if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)) return;
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // else /proc/self stays root's
    die_with_parent();                   // a change of user forgets it
}

// Waits for the one process inside and ends as it did. It keeps no descriptor: a closed channel is seen.
static inline void supervise(pid_t inside) {
    int status = 0;
    close_range(0, ~0u, 0);
    while (waitpid(inside, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

// User, network, pid, mount, ipc and uts namespaces of its own; goes on in the first process inside.
static inline int enter_namespaces(void) {
    char map[64];
    unsigned user = geteuid(), group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS)) return 0;
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", user, user);
    int fine = write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", group, group);
    fine = write_file("/proc/self/gid_map", map) && fine;
    fine = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && fine;
    pid_t inside = fork();
    if (inside < 0) return 0;
    if (inside) supervise(inside);
    die_with_parent();
    return fine;
}

static inline int drop_capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    return syscall(SYS_capset, &head, none) == 0;
}

// A ruleset that forbids every access to files, TCP and what is outside; -1 where there is no landlock.
static inline int landlock_rules(void) {
    struct {
        uint64_t files, network, scoped;
    } handled = {(1ull << 13) - 1, 0, 0};
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    if (version < 1) return -1;
    if (version >= 2) handled.files |= 1ull << 13;  // refer
    if (version >= 3) handled.files |= 1ull << 14;  // truncate
    if (version >= 5) handled.files |= 1ull << 15;  // ioctl of devices
    if (version >= 4) handled.network = 3;
    if (version >= 6) handled.scoped = 3;
    size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    return (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
}

// Allows one path and what lies below it. A path that is not there needs no rule.
static inline int landlock_allow(int rules, const char* path, int writing) {
    struct {
        uint64_t access;
        int32_t fd;
    } __attribute__((packed)) rule = {LANDLOCK_READ, open(path, O_PATH | O_CLOEXEC)};
    struct stat about;
    if (rule.fd < 0) return 1;
    if (fstat(rule.fd, &about)) about.st_mode = 0;
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    uint64_t known = (1ull << (version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13)) - 1;
    if (writing) rule.access = known;
    if (!S_ISDIR(about.st_mode)) rule.access &= LANDLOCK_FILE;
    int fine = !syscall(SYS_landlock_add_rule, rules, 1, &rule, 0);
    close(rule.fd);
    return fine;
}

static inline int landlock_enforce(int rules) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int fine = rules >= 0 && !syscall(SYS_landlock_restrict_self, rules, 0);
    if (rules >= 0) close(rules);
    return fine;
}
