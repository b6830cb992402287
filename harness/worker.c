#include "harness/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What travels, both ways, one datagram of a SOCK_SEQPACKET pair each: whole or not at all. Both ends are the same
 * program, so the structure itself can travel; the id tells whether they mean the same case. */
typedef enum frame_kind { FRAME_READY, FRAME_JUDGE, FRAME_TAKEN, FRAME_RESULT } frame_kind;

typedef struct frame {
    uint32_t magic;
    frame_kind kind;
    size_t index;
    char id[NG_ID_BYTES];
    ng_status status;
    ng_error error;
    ng_result result;
} frame;

enum { FRAME_MAGIC = 0x4E474631, START_LIMIT_S = 120, STOP_LIMIT_S = 5 };

static ng_status send_frame(int channel, const frame *message) {
    ssize_t sent;
    do
        sent = send(channel, message, sizeof *message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof *message ? NG_OK : NG_IO;
}

/* ---- the worker's side --------------------------------------------------------------------------------------------*/
/* Nearest even, subnormals kept: a library linked with -Ofast switches them off as it is loaded, and threads inherit that. */
static void reset_arithmetic(void) {
    fesetenv(FE_DFL_ENV);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1F80);
#endif
}

static void serve(const ng_worker_setup *setup, int channel) {
    reset_arithmetic();
    frame *message = calloc(1, sizeof *message);
    ng_judge *judge = NULL;
    if (!message) return;
    message->magic = FRAME_MAGIC;
    message->kind = FRAME_READY;
    message->status = setup->judge->create(setup->settings, setup->catalogue, &judge, &message->error);
    bool created = !message->status;
    while (!send_frame(channel, message) && created) {
        ssize_t got = recv(channel, message, sizeof *message, 0);
        if (got != (ssize_t)sizeof *message) break; /* 0: no more cases */
        size_t index = message->index;
        if (message->kind != FRAME_JUDGE || index >= setup->list->count ||
            strcmp(message->id, setup->list->cases[index].id))
            break;
        message->kind = FRAME_TAKEN;
        if (send_frame(channel, message)) break;
        memset(&message->result, 0, sizeof message->result);
        message->kind = FRAME_RESULT;
        message->status = setup->judge->judge(judge, &setup->list->cases[index], &message->result, &message->error);
    }
    if (created) setup->judge->free(judge);
    free(message);
}

/* Standard input is closed to kernels; what they print goes to standard error, for standard output may be a record. */
static void detach_streams(void) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

static void become_worker(const ng_worker_setup *setup, int channel, pid_t parent) {
    sigset_t none;
    setpgid(0, 0); /* a terminal's interrupt reaches the parent alone, which then decides */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(2);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close(setup->signals);
    detach_streams();
    serve(setup, channel);
    fflush(NULL);
    _exit(0);
}

/* ---- the parent's side --------------------------------------------------------------------------------------------*/
static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const struct {
    int number;
    const char *name;
} signal_names[] = {
    {SIGSEGV, "SIGSEGV (invalid memory reference)"},
    {SIGABRT, "SIGABRT (abort)"},
    {SIGBUS, "SIGBUS (bad address)"},
    {SIGFPE, "SIGFPE (arithmetic)"},
    {SIGILL, "SIGILL (illegal instruction)"},
    {SIGTRAP, "SIGTRAP (trap)"},
    {SIGKILL, "SIGKILL (out of memory?)"},
    {SIGTERM, "SIGTERM"},
    {SIGINT, "SIGINT"},
    {SIGHUP, "SIGHUP"},
    {SIGPIPE, "SIGPIPE"},
    {SIGXCPU, "SIGXCPU (processor time limit)"},
    {SIGXFSZ, "SIGXFSZ (file size limit)"},
    {SIGSYS, "SIGSYS (bad system call)"},
};

void ng_describe_end(int wait_status, char *text, size_t capacity) {
    if (!WIFSIGNALED(wait_status)) {
        snprintf(text, capacity, "left with status %d", WEXITSTATUS(wait_status));
        return;
    }
    for (size_t i = 0; i < sizeof signal_names / sizeof *signal_names; i++)
        if (signal_names[i].number == WTERMSIG(wait_status)) {
            snprintf(text, capacity, "died of %s", signal_names[i].name);
            return;
        }
    snprintf(text, capacity, "died of signal %d", WTERMSIG(wait_status));
}

static void close_worker(ng_worker *worker) {
    if (worker->channel >= 0) close(worker->channel);
    worker->channel = -1;
    worker->pid = 0;
}

void ng_worker_kill(ng_worker *worker) {
    if (!worker->pid) return;
    kill(-worker->pid, SIGKILL); /* with whatever it started */
    kill(worker->pid, SIGKILL);
    while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close_worker(worker);
}

typedef enum heard { HEARD_FRAME, HEARD_END, HEARD_DEADLINE, HEARD_SIGNAL } heard;

/* True if a pending signal asks this process to end. */
static bool take_signal(ng_worker *worker) {
    struct signalfd_siginfo info;
    if (read(worker->setup->signals, &info, sizeof info) != (ssize_t)sizeof info) return false;
    if (info.ssi_signo == SIGCHLD) return false;
    worker->signal = (int)info.ssi_signo;
    return true;
}

static bool has_ended(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == pid;
}

/* Waits for the worker's next frame, its end, the deadline or a signal. A frame that is there comes before everything
 * else, so that a result that was sent is never lost. */
static heard listen_to(ng_worker *worker, double deadline, frame *message) {
    struct pollfd fds[2] = {{worker->channel, POLLIN, 0}, {worker->setup->signals, POLLIN, 0}};
    for (;;) {
        ssize_t got = recv(worker->channel, message, sizeof *message, MSG_DONTWAIT);
        if (got == (ssize_t)sizeof *message && message->magic == FRAME_MAGIC) return HEARD_FRAME;
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)) return HEARD_END;
        if (worker->signal) return HEARD_SIGNAL;
        if (has_ended(worker->pid) && poll(fds, 1, 0) <= 0) return HEARD_END;
        double left = deadline - now_s();
        if (left <= 0) return HEARD_DEADLINE;
        int wait_ms = left > 60 ? 60000 : (int)(left * 1e3) + 1;
        if (poll(fds, 2, wait_ms) > 0 && fds[1].revents) take_signal(worker);
    }
}

/* Collects a worker that is gone or that has closed its channel, and says how it ended. */
static void bury(ng_worker *worker, ng_error *error) {
    char how[96];
    int status = 0;
    double deadline = now_s() + 1;
    pid_t got;
    while ((got = waitpid(worker->pid, &status, WNOHANG)) == 0 && now_s() < deadline)
        poll(NULL, 0, 5);
    if (got == worker->pid) {
        ng_describe_end(status, how, sizeof how);
        kill(-worker->pid, SIGKILL);
        close_worker(worker);
    } else {
        snprintf(how, sizeof how, "closed its channel or sent what it should not");
        ng_worker_kill(worker);
    }
    ng_fail(error, NG_INTERNAL, "the process %s", how);
}

ng_status ng_worker_start(const ng_worker_setup *setup, ng_worker *worker, ng_error *error) {
    int pair[2] = {-1, -1};
    ng_status status = NG_OK;
    *worker = (ng_worker){.setup = setup, .channel = -1};
    frame *message = malloc(sizeof *message);
    if (!message) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        status = ng_fail(error, NG_IO, "no channel to a worker: %s", strerror(errno));
        goto done;
    }
    fflush(NULL); /* or the worker's exit would write it again */
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        status = ng_fail(error, NG_IO, "no worker process: %s", strerror(errno));
        goto done;
    }
    if (!pid) {
        close(pair[0]);
        become_worker(setup, pair[1], parent);
    }
    setpgid(pid, pid);
    worker->pid = pid;
    worker->channel = pair[0];
    pair[0] = -1;
    close(pair[1]);
    pair[1] = -1;
    switch (listen_to(worker, now_s() + START_LIMIT_S, message)) {
    case HEARD_FRAME:
        status = message->status;
        if (status) *error = message->error;
        break;
    case HEARD_END:
        bury(worker, error);
        status = NG_INTERNAL;
        break;
    case HEARD_DEADLINE:
        status = ng_fail(error, NG_INTERNAL, "the worker process was not ready after %d s", START_LIMIT_S);
        break;
    case HEARD_SIGNAL: ng_worker_kill(worker); break;
    }
    if (status) ng_worker_kill(worker);
done:
    if (pair[0] >= 0) close(pair[0]);
    if (pair[1] >= 0) close(pair[1]);
    free(message);
    return status;
}

/* A result from a process whose memory a kernel may have trampled on: no string without its end, no unknown verdict. */
static bool is_sound(const frame *answer, size_t index, const char *id) {
    const ng_result *r = &answer->result;
    return answer->kind == FRAME_RESULT && answer->index == index && !strncmp(answer->id, id, NG_ID_BYTES) &&
           (unsigned)r->verdict < NG_VERDICTS && memchr(r->reason, 0, sizeof r->reason) &&
           memchr(r->digest, 0, sizeof r->digest) && memchr(r->golden, 0, sizeof r->golden) &&
           memchr(r->prediction.model, 0, sizeof r->prediction.model) &&
           memchr(r->speed.algorithm, 0, sizeof r->speed.algorithm) && memchr(r->speed.method, 0, sizeof r->speed.method) &&
           memchr(r->speed.throttle, 0, sizeof r->speed.throttle) && r->speed.part_count >= 0 &&
           r->speed.part_count <= NG_SPEED_PARTS && memchr(answer->error.text, 0, sizeof answer->error.text);
}

ng_outcome ng_worker_judge(ng_worker *worker, size_t index, double timeout_s, ng_result *result, ng_error *error) {
    const char *id = worker->setup->list->cases[index].id;
    double deadline = timeout_s > 0 ? now_s() + timeout_s : INFINITY;
    ng_outcome outcome = NG_LOST;
    frame *message = calloc(1, sizeof *message);
    if (!message) {
        ng_fail(error, NG_NO_MEMORY, "out of memory");
        return NG_JUDGE_FAILED;
    }
    message->magic = FRAME_MAGIC;
    message->kind = FRAME_JUDGE;
    message->index = index;
    snprintf(message->id, sizeof message->id, "%s", id);
    if (send_frame(worker->channel, message)) {
        bury(worker, error);
        goto done;
    }
    for (;;) {
        heard what = listen_to(worker, deadline, message);
        if (what == HEARD_FRAME && message->kind == FRAME_TAKEN && message->index == index) {
            outcome = NG_DIED; /* from here on the case answers for the process */
            continue;
        }
        if (what == HEARD_FRAME && is_sound(message, index, id)) {
            outcome = message->status ? NG_JUDGE_FAILED : NG_ANSWERED;
            *result = message->result;
            if (message->status) *error = message->error;
            worker->judged++;
            worker->previous = index;
            if (poll(&(struct pollfd){worker->setup->signals, POLLIN, 0}, 1, 0) > 0) take_signal(worker);
        } else if (what == HEARD_FRAME || what == HEARD_END) {
            bury(worker, error);
        } else if (what == HEARD_DEADLINE) {
            ng_worker_kill(worker);
            ng_fail(error, NG_INTERNAL, "no verdict after %g s; the process was killed", timeout_s);
            outcome = NG_TIMED_OUT;
        } else {
            ng_worker_kill(worker);
            outcome = NG_INTERRUPTED;
        }
        break;
    }
done:
    free(message);
    return outcome;
}

ng_status ng_worker_stop(ng_worker *worker, ng_error *error) {
    int status = 0;
    pid_t got;
    if (!worker->pid) return NG_OK;
    shutdown(worker->channel, SHUT_WR);
    double deadline = now_s() + STOP_LIMIT_S;
    while ((got = waitpid(worker->pid, &status, WNOHANG)) == 0 && now_s() < deadline)
        poll(NULL, 0, 2);
    if (got != worker->pid) {
        ng_worker_kill(worker);
        return ng_fail(error, NG_INTERNAL, "the process did not end within %d s of its last case", STOP_LIMIT_S);
    }
    close_worker(worker);
    if (WIFEXITED(status) && !WEXITSTATUS(status)) return NG_OK;
    char how[96];
    ng_describe_end(status, how, sizeof how);
    return ng_fail(error, NG_INTERNAL, "the process %s after its last case", how);
}
