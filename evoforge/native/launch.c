// Runs one program confined: evoforge starts compilers and Python workers through it, because they read
// or run what others wrote.
// usage: launch [-s] [-r PATH]… [-w PATH]… [-t CPU_SECONDS] [-m MEMORY_BYTES] [-f FILE_BYTES] [-k FD] [-q]
// -- PROGRAM ARGUMENTS…
// -s takes every layer that there is: namespaces, landlock (reads only below the -r and -w paths, writes below
// the -w ones) and a filter. -k keeps one inherited descriptor beside 0–2. -q prints the layers reached, one
// a line, and runs nothing. The program dies with the thread that started it and cannot gain privileges.
#include "sandbox.h"

#include "filter.h"

static int refuse_calls(void) {
    const int refused[] = {
        SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd, SYS_mount,
        SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_setns, SYS_unshare, SYS_bpf, SYS_perf_event_open, SYS_keyctl,
        SYS_add_key, SYS_request_key, SYS_userfaultfd, SYS_io_uring_setup, SYS_kexec_load, SYS_init_module,
        SYS_finit_module, SYS_delete_module, SYS_swapon, SYS_swapoff, SYS_reboot, SYS_acct, SYS_quotactl, SYS_open_by_handle_at,
        SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_setuid, SYS_setgid, SYS_mknod, SYS_mknodat,
    };
    enum { COUNT = sizeof refused / sizeof *refused };
    struct sock_filter lines[5 + 2 * COUNT + 20] = {START};
    const struct sock_filter last[] = {
        REFUSE(SYS_clone3, ENOSYS),
        IF_CALL(SYS_clone, 4), LOAD(args[0]), IF_ANY(OTHER_SPACES & ~CLONE_VFORK), ERROR(EPERM), ALLOW,
        IF_CALL(SYS_socket, 4), LOAD(args[0]), IF_EQUAL(1), ALLOW, ERROR(EACCES),  // AF_UNIX
        ALLOW,
    };
    size_t count = 4;
    for (size_t i = 0; i < COUNT; i++) {
        const struct sock_filter pair[] = {REFUSE(refused[i], EPERM)};
        lines[count++] = pair[0], lines[count++] = pair[1];
    }
    memcpy(lines + count, last, sizeof last);
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && set_filter(lines, (count + sizeof last / sizeof *last) * sizeof *lines);
}

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
        int rules = landlock_rules();
        for (int i = 0; rules >= 0 && i < n_paths; i++) landlock_allow(rules, paths[i], writing[i]);
        locked = landlock_enforce(rules);
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
