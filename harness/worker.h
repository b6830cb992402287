/* A process that judges cases one at a time for a parent that never touches a kernel: what crashes or hangs takes the
 * worker with it, never the run. A worker is forked, so it has the same case list; a case is known by its place and
 * checked by its id on both sides. */
#ifndef NG_HARNESS_WORKER_H
#define NG_HARNESS_WORKER_H

#include "harness/expand.h"

#include <sys/types.h>

/* How a worker judges: ng_judge_* in the program, something that misbehaves in tests. */
typedef struct ng_judge_functions {
    ng_status (*create)(const ng_settings *settings, const ng_catalogue *catalogue, ng_judge **judge, ng_error *error);
    ng_status (*judge)(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
    void (*free)(ng_judge *judge);
} ng_judge_functions;

typedef struct ng_worker_setup {
    const ng_case_list *list;
    const ng_settings *settings;
    const ng_catalogue *catalogue;
    const ng_judge_functions *judge;
    int signals; /* signalfd of SIGINT, SIGTERM, SIGHUP (all blocked) and SIGCHLD */
} ng_worker_setup;

typedef enum ng_outcome {
    NG_ANSWERED,    /* *result is the judge's */
    NG_JUDGE_FAILED,/* the judge itself failed: *error says why; the worker lives */
    NG_DIED,        /* by a signal or by leaving, while it had the case; *error says how */
    NG_TIMED_OUT,   /* killed */
    NG_LOST,        /* died before it took the case up: nobody's fault yet */
    NG_INTERRUPTED, /* a signal asks this process to end; the worker is killed */
} ng_outcome;

typedef struct ng_worker {
    const ng_worker_setup *setup;
    pid_t pid;       /* 0: none */
    int channel;
    size_t judged;   /* cases so far */
    size_t previous; /* the last of them */
    int signal;      /* NG_INTERRUPTED: which */
} ng_worker;

/* Forks a worker and waits until its judge exists. NG_OK with worker->signal set: interrupted meanwhile. */
ng_status ng_worker_start(const ng_worker_setup *setup, ng_worker *worker, ng_error *error);

/* Has the worker judge one case; timeout_s 0: however long it takes. Afterwards worker->pid is 0 if it is gone. */
ng_outcome ng_worker_judge(ng_worker *worker, size_t index, double timeout_s, ng_result *result, ng_error *error);

/* Lets the worker free what it has and waits for its end; killed after a few seconds. NG_INTERNAL: it died of it. */
ng_status ng_worker_stop(ng_worker *worker, ng_error *error);

/* Ends it at once. */
void ng_worker_kill(ng_worker *worker);

/* "died of SIGSEGV (segmentation fault)", "left with status 3". */
void ng_describe_end(int wait_status, char *text, size_t capacity);

#endif
