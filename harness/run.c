#include "harness/run.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/signalfd.h>
#include <unistd.h>

typedef struct runner {
    const ng_run_plan *plan;
    const ng_run_events *events;
    ng_worker_setup setup;
    ng_worker worker;
    int retries;
} runner;

static ng_status ensure_worker(runner *r, ng_error *error) {
    if (r->worker.pid) return NG_OK;
    ng_error inner;
    ng_status status = ng_worker_start(&r->setup, &r->worker, &inner);
    if (status) return ng_fail(error, status, "no process to judge cases in: %.900s", inner.text);
    return NG_OK;
}

static void set_verdict(ng_result *result, ng_verdict verdict, const char *reason) {
    *result = (ng_result){.verdict = verdict, .saturated = NAN, .flushed = NAN, .verify_s = NAN};
    snprintf(result->reason, sizeof result->reason, "%.511s", reason);
    snprintf(result->golden, sizeof result->golden, "unset");
}

/* A case that dies may have been wounded by an earlier one of the same process. Judged again, first in a fresh process, it
 * shows: if it dies again it is its own doing; if not, it keeps the verdict it has alone, and stays a crash, for
 * something in this list destroys memory that is not its own. */
static ng_outcome try_alone(runner *r, size_t index, ng_result *result, ng_error *error) {
    size_t before = r->worker.previous;
    ng_error death = *error;
    ng_result alone;
    if (ensure_worker(r, error)) {
        *error = death;
        return NG_DIED;
    }
    if (r->worker.signal) return NG_INTERRUPTED;
    ng_outcome outcome = ng_worker_judge(&r->worker, index, r->plan->settings->timeout_s, &alone, error);
    if (outcome != NG_ANSWERED) return outcome;
    char reason[sizeof result->reason];
    snprintf(reason, sizeof reason,
             "%.160s; alone in a fresh process it is %s, so an earlier case may be to blame, perhaps %.200s", death.text,
             ng_verdict_names[alone.verdict], r->plan->list->cases[before].id);
    *result = alone;
    result->verdict = NG_CRASH;
    memcpy(result->reason, reason, sizeof reason);
    return NG_ANSWERED;
}

/* One case to its verdict. NG_OK with worker.signal set: interrupted, no verdict. */
static ng_status run_case(runner *r, size_t index, ng_result *result, ng_error *error) {
    ng_outcome outcome = NG_LOST;
    ng_error why = {0};
    ng_status status;
    for (int attempt = 0; attempt < 2 && outcome == NG_LOST; attempt++) {
        status = ensure_worker(r, error);
        if (status || r->worker.signal) return status;
        outcome = ng_worker_judge(&r->worker, index, r->plan->settings->timeout_s, result, &why);
        if (outcome == NG_LOST && r->worker.judged) r->events->remark(r->events->context, why.text);
    }
    if (outcome == NG_DIED && r->worker.judged) outcome = try_alone(r, index, result, &why);
    if (outcome == NG_LOST) return ng_fail(error, NG_INTERNAL, "no process lives long enough to judge: %.800s", why.text);
    if (outcome == NG_DIED) set_verdict(result, NG_CRASH, why.text);
    else if (outcome == NG_TIMED_OUT) set_verdict(result, NG_TIMEOUT, why.text);
    else if (outcome == NG_JUDGE_FAILED) {
        /* Nothing that this process does later can be trusted: a CUDA context, once lost, stays lost. */
        set_verdict(result, NG_CRASH, why.text);
        ng_worker_kill(&r->worker);
    }
    return NG_OK;
}

/* A second verdict, in a fresh process. A pass makes a flake of the first; anything else leaves it, repeatable. */
static ng_status run_again(runner *r, size_t index, ng_result *result, ng_error *error) {
    ng_result again;
    char first[sizeof result->reason];
    r->retries++;
    ng_worker_kill(&r->worker);
    ng_status status = run_case(r, index, &again, error);
    if (status || (r->worker.signal && !r->worker.pid)) return status;
    ng_goldens_apply(r->plan->goldens, &r->plan->list->cases[index], &again);
    memcpy(first, result->reason, sizeof first);
    if (again.verdict != NG_PASS) {
        snprintf(result->reason, sizeof result->reason, "%.430s; run again in a fresh process: %s", first, ng_verdict_names[again.verdict]);
        return NG_OK;
    }
    const char *was = ng_verdict_names[result->verdict];
    *result = again;
    result->verdict = NG_FLAKE;
    snprintf(result->reason, sizeof result->reason, "%s at first (%.400s); it passes when run again in a fresh process", was, first);
    return NG_OK;
}

/* What goldens and expectations make of a verdict. */
static ng_status settle(runner *r, size_t index, ng_result *result, ng_error *error) {
    static const bool may_be_chance[NG_VERDICTS] = {[NG_FAIL] = true, [NG_MOVED] = true, [NG_CRASH] = true, [NG_TIMEOUT] = true};
    const ng_case *one = &r->plan->list->cases[index];
    ng_goldens_apply(r->plan->goldens, one, result);
    ng_expectation_apply(ng_expectation_of(r->plan->expectations, one), result);
    if (!r->plan->retry || !may_be_chance[result->verdict] || r->retries >= NG_MOST_RETRIES) return NG_OK;
    return run_again(r, index, result, error);
}

/* A case that is not to be run at all. */
static bool skip_expected(runner *r, size_t index, ng_result *result) {
    const ng_expectation *e = ng_expectation_of(r->plan->expectations, &r->plan->list->cases[index]);
    if (!e || e->expected != NG_EXPECT_SKIP) return false;
    set_verdict(result, NG_SKIP, "");
    snprintf(result->reason, sizeof result->reason, "not run: %.300s (%.180s)", e->reason, e->link);
    return true;
}

static ng_status run_list(runner *r, ng_error *error) {
    const ng_run_plan *plan = r->plan;
    for (size_t i = 0; i < plan->list->count; i++) {
        ng_result result;
        ng_status status = NG_OK;
        if (plan->done && plan->done[i]) continue;
        r->events->started(r->events->context, i);
        if (!skip_expected(r, i, &result)) {
            status = run_case(r, i, &result, error);
            if (!status && !(r->worker.signal && !r->worker.pid)) status = settle(r, i, &result, error);
        }
        if (status) return status;
        if (r->worker.signal && !r->worker.pid) return NG_OK; /* killed before a verdict */
        status = r->events->finished(r->events->context, i, &result, error);
        if (status || r->worker.signal) return status;
    }
    return NG_OK;
}

static void stop_worker(runner *r) {
    ng_error why;
    if (ng_worker_stop(&r->worker, &why)) r->events->remark(r->events->context, why.text);
}

/* timeout(1) signals the process and then its group: the second one must not cut off the line that says how to go on. */
static void forget_repeated_signals(void) {
    const struct timespec soon = {0, 50 * 1000 * 1000};
    sigset_t again;
    sigemptyset(&again);
    sigaddset(&again, SIGINT);
    sigaddset(&again, SIGTERM);
    sigaddset(&again, SIGHUP);
    sigaddset(&again, SIGCONT); /* which timeout(1) sends too */
    while (sigtimedwait(&again, NULL, &soon) > 0)
        ;
}

ng_status ng_run_cases(const ng_run_plan *plan, const ng_run_events *events, int *interrupted, ng_error *error) {
    runner r = {.plan = plan, .events = events};
    sigset_t ours, before;
    struct sigaction child = {.sa_handler = SIG_DFL}, child_before, pipe = {.sa_handler = SIG_IGN}, pipe_before;
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    *interrupted = 0;
    sigemptyset(&ours);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        sigaddset(&ours, watched[i]);
    int signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) return ng_fail(error, NG_IO, "no signalfd: %s", strerror(errno));
    sigprocmask(SIG_BLOCK, &ours, &before);
    sigaction(SIGCHLD, &child, &child_before); /* if it were ignored, nobody could be waited for */
    sigaction(SIGPIPE, &pipe, &pipe_before);   /* a reader that left is seen in ferror() at the end */
    r.setup = (ng_worker_setup){plan->list, plan->settings, plan->catalogue, plan->judge, signals};
    r.worker.channel = -1;
    ng_status status = run_list(&r, error);
    *interrupted = r.worker.signal;
    if (status || r.worker.signal) ng_worker_kill(&r.worker);
    else stop_worker(&r);
    close(signals);
    if (*interrupted) forget_repeated_signals();
    sigaction(SIGPIPE, &pipe_before, NULL);
    sigaction(SIGCHLD, &child_before, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}
