// What confines a process that reads or runs what others wrote and needs files: launch.c, fork.c.
#pragma once
#include "sandbox.h"

#include "filter.h"

static inline int refuse_calls(void) {
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
        IF_CALL(SYS_prctl, 4), LOAD(args[0]), IF_EQUAL(PR_SET_PDEATHSIG), ERROR(EPERM), ALLOW,
        REFUSE(SYS_socket, EACCES),  // AF_UNIX too: what listens in a folder would act outside for whoever connects
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

// Landlock: reads below all paths, writes below those marked so.
static inline int allow_only(const char* const* paths, const int* writing, int count) {
    int rules = landlock_rules();
    for (int i = 0; rules >= 0 && i < count; i++) landlock_allow(rules, paths[i], writing[i]);
    return landlock_enforce(rules);
}
