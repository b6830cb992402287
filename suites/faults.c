#include "suites/faults.h"

#include "harness/args.h"
#include "harness/json.h"
#include "harness/output.h"
#include "harness/plugin.h"
#include "harness/record.h"
#include "harness/run.h"
#include "harness/terminal.h"
#include "suites/faults/faults.h"
#include "suites/peers.h"

#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef NG_LIBRARY_DIRECTORY
#define NG_LIBRARY_DIRECTORY "lib"
#endif

/* ---- judges -------------------------------------------------------------------------------------------------------*/
/* narrowgauge's verdicts, then the peers. Regression stands for a golden recorded of the right kernel: other bits than its. */
enum { ACCURACY, PREDICTION, DETERMINISM, CONDUCT, REGRESSION, PEERS, JUDGES = PEERS + NG_PEERS };
#define BIT(judge) (1u << (judge))
static const unsigned own_verdicts = BIT(ACCURACY) | BIT(PREDICTION) | BIT(DETERMINISM) | BIT(CONDUCT);

static const ng_peer_rule own_rules[PEERS] = {
    [ACCURACY] = {"accuracy", "the bound proved from the contract, or the one right code"},
    [PREDICTION] = {"prediction", "the bits that the contract fixes"},
    [DETERMINISM] = {"determinism", "the same bits on every launch"},
    [CONDUCT] = {"conduct", "no crash, no hang, nothing written elsewhere, no input changed"},
    [REGRESSION] = {"regression", "the right kernel's bits, as a golden has them"},
};

static const ng_peer_rule *rule_of(int judge) { return judge < PEERS ? &own_rules[judge] : &ng_peer_rules[judge - PEERS]; }

/* ---- one run ------------------------------------------------------------------------------------------------------*/
typedef struct outcome {
    bool judged;
    unsigned rejected; /* bit per ng_peer */
    ng_result result;
} outcome;

/* What the processes that judge share. */
typedef struct shared {
    atomic_size_t next; /* group */
    atomic_size_t done; /* cases */
    outcome outcomes[];
} shared;

typedef struct trial {
    ng_case_list list;
    size_t *groups; /* where each begins; one more at the end */
    size_t group_count;
    shared *shared;
    size_t shared_bytes, first_group; /* judged first */
    double deadline_s;                /* monotonic; 0: none */
} trial;

typedef struct fault {
    const ng_kernel *kernel, *right; /* right NULL: unknown */
    const char *imitates;            /* NULL: unknown */
    unsigned kills;
    size_t cases;
} fault;

typedef struct suite {
    const char *name;
    bool *judges, *kills; /* [faults] */
} suite;

typedef struct options {
    ng_texts plugins, filters;
    const char *json;
    int level;
    uint64_t seed;
    int64_t seeds, jobs;
    double timeout_s, limit_s;
    bool quiet;
} options;

typedef struct session {
    const ng_program *program;
    options options;
    ng_args args;
    ng_plugins plugins;
    char *planted; /* path of the planted faults */
    fault *faults;
    size_t fault_count;
    const ng_kernel **rights;
    size_t right_count;
    suite *suites;
    size_t suite_count;
    size_t false_alarms, right_cases, cases, survived;
    size_t peer_alarms[NG_PEERS]; /* right kernels' cases that a peer rejects */
    ng_output json;
    double seconds;
} session;

#define AT(member) .offset = offsetof(options, member)
static const ng_option option_rows[] = {
    {"level", 'l', NG_CHOICE, "smoke|ci|nightly", "how much of the case tables (default ci)", AT(level), .choices = ng_level_names},
    {"seed", 's', NG_SEED, "N", "of all random data (default 1)", AT(seed)},
    {"seeds", 0, NG_COUNT, "N", "judge the right kernels with N seeds, from --seed on (default 1)", AT(seeds)},
    {"limit", 0, NG_SECONDS, "S", "for all seeds behind the first together: stop there, wherever they are (default: none)", AT(limit_s)},
    {"plugin", 'p', NG_TEXTS, "LIB", "faulty kernels in place of the planted ones; may be given several times", AT(plugins)},
    {"filter", 'f', NG_TEXTS, "GLOB", "only faults whose kernel's name matches; may be given several times", AT(filters)},
    {"json", 'o', NG_TEXT, "FILE|-", "the matrix as JSON", AT(json)},
    {"jobs", 'j', NG_COUNT, "N", "processes that judge (default: one a processor)", AT(jobs), .least = 1, .most = 256},
    {"timeout", 0, NG_SECONDS, "S", "for each case (default 60)", AT(timeout_s)},
    {"quiet", 'q', NG_FLAG, NULL, "only survivors, false alarms and the summary", AT(quiet)},
};
enum { OPTIONS = sizeof option_rows / sizeof *option_rows };

/* ---- which kernels ------------------------------------------------------------------------------------------------*/
/* The planted faults lie beside the program in a build tree, and in the library directory of an installation. */
static ng_status find_planted(session *s, ng_error *error) {
    static const char *const places[] = {"faults/libngfaults.so", "../" NG_LIBRARY_DIRECTORY "/narrowgauge/libngfaults.so"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) return ng_fail(error, NG_IO, "where this program lies is unknown: %s; give --plugin LIB", strerror(errno));
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        free(s->planted);
        if (asprintf(&s->planted, "%s/%s", self, places[i]) < 0) {
            s->planted = NULL;
            return ng_fail(error, NG_NO_MEMORY, "out of memory");
        }
        if (!access(s->planted, R_OK)) return NG_OK;
    }
    return ng_fail(error, NG_IO, "%s: the planted faults are not there; give --plugin LIB", s->planted);
}

static bool is_wanted(const session *s, const char *name) {
    const ng_texts *filters = &s->options.filters;
    for (size_t i = 0; i < filters->count; i++)
        if (!strcmp(filters->items[i], name) || !fnmatch(filters->items[i], name, 0)) return true;
    return !filters->count;
}

static const ng_kernel *built_in(const session *s, const char *name) {
    for (size_t i = 0; name && i < s->program->kernel_count; i++)
        if (!strcmp(s->program->kernels[i]->name, name)) return s->program->kernels[i];
    return NULL;
}

static void add_right(session *s, const ng_kernel *right) {
    for (size_t i = 0; i < s->right_count; i++)
        if (s->rights[i] == right) return;
    if (right) s->rights[s->right_count++] = right;
}

static ng_status add_plugin(session *s, const ng_loaded_plugin *loaded, ng_error *error) {
    ng_fault_notes_function entry = NULL;
    void *symbol = dlsym(loaded->library, NG_FAULT_NOTES);
    memcpy(&entry, &symbol, sizeof entry);
    const ng_fault_notes *notes = entry ? entry() : NULL;
    for (uint32_t i = 0; i < loaded->plugin->count; i++) {
        fault one = {.kernel = loaded->plugin->kernels[i]};
        if (!is_wanted(s, one.kernel->name)) continue;
        for (uint32_t n = 0; notes && n < notes->count; n++) {
            if (strcmp(notes->notes[n].kernel, one.kernel->name)) continue;
            one.imitates = notes->notes[n].imitates;
            one.right = built_in(s, notes->notes[n].right);
            if (notes->notes[n].right && !one.right)
                return ng_fail(error, NG_BAD_ARGUMENT, "%s: %s claims the contract of %s, which is no kernel", loaded->path,
                               one.kernel->name, notes->notes[n].right);
        }
        s->faults[s->fault_count++] = one;
        add_right(s, one.right);
    }
    return NG_OK;
}

static ng_status gather(session *s, ng_error *error) {
    const char *planted[1];
    const ng_texts *given = &s->options.plugins;
    ng_status status = given->count ? NG_OK : find_planted(s, error);
    if (status) return status;
    planted[0] = s->planted;
    status = ng_plugins_load(s->program->kernels, s->program->kernel_count, given->count ? given->items : planted,
                             given->count ? given->count : 1, &s->plugins, error);
    if (status) return status;
    s->faults = calloc(s->plugins.kernel_count + 1, sizeof *s->faults);
    s->rights = calloc(s->plugins.kernel_count + 1, sizeof *s->rights);
    if (!s->faults || !s->rights) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < s->plugins.count && !status; i++)
        status = add_plugin(s, &s->plugins.items[i], error);
    if (!status && !s->fault_count) status = ng_fail(error, NG_BAD_ARGUMENT, "no faulty kernel has such a name");
    return status;
}

/* ---- judging ------------------------------------------------------------------------------------------------------*/
/* Neighbours in a list share their data, which a judge keeps: a group is judged by one process. */
static bool shares_data(const ng_case *a, const ng_case *b) {
    return a->suite == b->suite && a->data.distribution == b->data.distribution && a->problem.m == b->problem.m &&
           a->problem.n == b->problem.n && a->problem.k == b->problem.k && a->repeats == b->repeats;
}

enum { LARGEST_GROUP = 48 };

static ng_status make_groups(trial *t, ng_error *error) {
    t->groups = calloc(t->list.count + 1, sizeof *t->groups);
    if (!t->groups) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 1, begun = 0; i <= t->list.count; i++)
        if (i == t->list.count || i - begun == LARGEST_GROUP || !shares_data(&t->list.cases[i - 1], &t->list.cases[i]))
            t->groups[++t->group_count] = begun = i;
    return NG_OK;
}

static ng_status begin_trial(const session *s, uint64_t seed, bool with_faults, trial *t, ng_error *error) {
    const ng_kernel **kernels = calloc(s->right_count + s->fault_count + 1, sizeof *kernels);
    if (!kernels) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_catalogue catalogue = {kernels, 0};
    for (size_t i = 0; i < s->right_count; i++)
        kernels[catalogue.count++] = s->rights[i];
    for (size_t i = 0; with_faults && i < s->fault_count; i++)
        kernels[catalogue.count++] = s->faults[i].kernel;
    const ng_selection selection = {.rows = s->program->rows, .row_count = s->program->row_count, .level = (ng_level)s->options.level, .seed = seed};
    ng_status status = ng_expand(&selection, &catalogue, &t->list, error);
    free(kernels);
    if (!status) status = make_groups(t, error);
    if (status) return status;
    t->shared_bytes = sizeof *t->shared + t->list.count * sizeof *t->shared->outcomes;
    void *memory = mmap(NULL, t->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return ng_fail(error, NG_NO_MEMORY, "no memory for %zu results", t->list.count);
    t->shared = memory;
    return NG_OK;
}

static void end_trial(trial *t) {
    if (t->shared) munmap(t->shared, t->shared_bytes);
    free(t->groups);
    ng_case_list_free(&t->list);
}

static void observe(void *context, const ng_observation *observation) {
    trial *t = context;
    t->shared->outcomes[observation->one - t->list.cases].rejected |= ng_peers_reject(observation);
}

/* One of the processes that judge. Groups are claimed one by one, whoever is first; `done` hides all others from the run. */
typedef struct claimant {
    trial *trial;
    bool *done;
    size_t group; /* being judged; none: group_count */
} claimant;

static size_t claim(trial *t) {
    bool late = t->deadline_s > 0 && ng_monotonic_s() > t->deadline_s;
    size_t n = late ? t->group_count : atomic_fetch_add(&t->shared->next, 1);
    return n < t->group_count ? (n + t->first_group) % t->group_count : t->group_count;
}

static void reveal(claimant *c, bool hidden) {
    const size_t *groups = c->trial->groups;
    if (c->group < c->trial->group_count) memset(c->done + groups[c->group], hidden, groups[c->group + 1] - groups[c->group]);
}

static void on_started(void *context, size_t index) { (void)context, (void)index; }
static void on_remark(void *context, const char *text) {
    (void)context;
    fprintf(stderr, "faults: %s\n", text);
}

/* At a group's end the next is claimed; one that lies ahead in the list is met by the same run and the same worker. */
static ng_status on_finished(void *context, size_t index, const ng_result *result, ng_error *error) {
    claimant *c = context;
    trial *t = c->trial;
    (void)error;
    t->shared->outcomes[index].result = *result;
    t->shared->outcomes[index].judged = true;
    atomic_fetch_add(&t->shared->done, 1);
    if (index + 1 != t->groups[c->group + 1]) return NG_OK;
    reveal(c, true);
    c->group = claim(t);
    reveal(c, false);
    return NG_OK;
}

static ng_status judge_groups(const session *s, trial *t, ng_error *error) {
    const ng_settings settings = {.seed = s->options.seed, .threads = 2, .timeout_s = s->options.timeout_s, .observe = observe, .observer = t};
    const ng_catalogue catalogue = ng_plugins_catalogue(&s->plugins);
    claimant c = {t, malloc(t->list.count + 1), claim(t)};
    const ng_run_events events = {&c, on_started, on_finished, on_remark};
    const ng_run_plan plan = {.list = &t->list, .settings = &settings, .catalogue = &catalogue, .judge = s->program->judge, .done = c.done};
    if (!c.done) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    memset(c.done, 1, t->list.count);
    reveal(&c, false);
    ng_status status = NG_OK;
    while (!status && c.group < t->group_count) { /* a second time where the claims wrapped around */
        int interrupted = 0;
        status = ng_run_cases(&plan, &events, &interrupted, error);
        if (!status && interrupted) status = ng_fail(error, NG_IO, "interrupted");
    }
    free(c.done);
    return status;
}

static void judge_in_child(const session *s, trial *t, pid_t parent) {
    ng_error error = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(2);
    ng_status status = judge_groups(s, t, &error);
    if (status) fprintf(stderr, "%s faults: %s\n", s->program->name, error.text);
    fflush(NULL);
    _exit(status ? 2 : 0);
}

static void show_progress(const session *s, const trial *t, bool end) {
    if (s->options.quiet || !isatty(STDERR_FILENO)) return;
    if (end) fprintf(stderr, "\r\033[K");
    else fprintf(stderr, "\rcase %zu of %zu", atomic_load(&t->shared->done), t->list.count);
}

static ng_status run_trial(const session *s, trial *t, ng_error *error) {
    int64_t jobs = s->options.jobs ? s->options.jobs : sysconf(_SC_NPROCESSORS_ONLN), running = 0;
    bool failed = false;
    pid_t parent = getpid();
    fflush(NULL);
    for (int64_t i = 0; i < jobs; i++) {
        pid_t child = fork();
        if (!child) judge_in_child(s, t, parent);
        running += child > 0;
    }
    if (!running) return ng_fail(error, NG_IO, "no process to judge in: %s", strerror(errno));
    while (running) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            running--;
            failed |= !WIFEXITED(status) || WEXITSTATUS(status);
        } else if (ended < 0 && errno != EINTR) break;
        else nanosleep(&(struct timespec){0, 50000000}, NULL);
        show_progress(s, t, false);
    }
    show_progress(s, t, true);
    return failed ? ng_fail(error, NG_INTERNAL, "a process that judged did not come to its end") : NG_OK;
}

/* ---- what it came to ----------------------------------------------------------------------------------------------*/
static bool has_wrong_numbers(const ng_result *r) { return r->error.beyond_bound || r->error.nonfinite_mismatch; }

/* The verdicts of one case, apart. A failure that is no wrong number of a first launch is one of the random draws, or of
 * bits that change, or of conduct. */
static unsigned verdicts_of(const ng_kernel *kernel, const outcome *o) {
    const ng_result *r = &o->result;
    unsigned verdicts = o->rejected << PEERS;
    bool changes = r->nondeterministic && kernel->contract.determinism != NG_NONDETERMINISTIC;
    if (r->verdict == NG_CRASH || r->verdict == NG_TIMEOUT) return verdicts | BIT(CONDUCT);
    if (changes) verdicts |= BIT(DETERMINISM);
    if (r->prediction.differ) verdicts |= BIT(PREDICTION);
    if (has_wrong_numbers(r)) verdicts |= BIT(ACCURACY);
    else if (r->verdict == NG_FAIL && !changes) verdicts |= BIT(r->error.present ? ACCURACY : CONDUCT);
    return verdicts;
}

/* The outcome of the right kernel on the same case; NULL: none. Ids hold the kernel's name. */
static const outcome *right_outcome(const trial *t, const fault *f, const ng_case *one) {
    char id[NG_ID_BYTES];
    if (!f->right) return NULL;
    const char *place = strstr(one->id, f->kernel->name);
    snprintf(id, sizeof id, "%.*s%s%s", (int)(place - one->id), one->id, f->right->name, place + strlen(f->kernel->name));
    for (size_t i = 0; i < t->list.count; i++)
        if (!strcmp(t->list.cases[i].id, id)) return t->shared->outcomes[i].judged ? &t->shared->outcomes[i] : NULL;
    return NULL;
}

/* What a judge says of the right kernel too tells nothing about the fault. */
static unsigned kills_of(const trial *t, const fault *f, size_t index) {
    const ng_case *one = &t->list.cases[index];
    const outcome *o = &t->shared->outcomes[index], *right = right_outcome(t, f, one);
    unsigned kills = verdicts_of(one->kernel, o);
    if (!right) return kills;
    if (*o->result.digest && *right->result.digest && strcmp(o->result.digest, right->result.digest)) kills |= BIT(REGRESSION);
    return kills & ~(verdicts_of(f->right, right) & ~own_verdicts);
}

static suite *suite_of(session *s, const char *name, ng_error *error) {
    for (size_t i = 0; i < s->suite_count; i++)
        if (!strcmp(s->suites[i].name, name)) return &s->suites[i];
    suite *grown = realloc(s->suites, (s->suite_count + 1) * sizeof *grown);
    if (grown) s->suites = grown;
    suite made = {name, calloc(s->fault_count, 1), calloc(s->fault_count, 1)};
    if (!grown || !made.judges || !made.kills) {
        free(made.judges);
        free(made.kills);
        ng_fail(error, NG_NO_MEMORY, "out of memory");
        return NULL;
    }
    s->suites[s->suite_count] = made;
    return &s->suites[s->suite_count++];
}

static fault *fault_of(session *s, const ng_kernel *kernel) {
    for (size_t i = 0; i < s->fault_count; i++)
        if (s->faults[i].kernel == kernel) return &s->faults[i];
    return NULL;
}

static void take_right(session *s, const trial *t, const ng_case *one, const outcome *o, uint64_t seed) {
    if (!o->judged && t->deadline_s > 0) return; /* not reached */
    bool accused = !o->judged || (o->result.verdict != NG_PASS && o->result.verdict != NG_SKIP);
    s->right_cases++;
    for (int p = 0; p < NG_PEERS; p++)
        s->peer_alarms[p] += o->rejected >> p & 1;
    if (!accused) return;
    s->false_alarms++;
    fprintf(stderr, "false alarm: %s, seed %llu: %s\n", one->id, (unsigned long long)seed, o->judged ? o->result.reason : "not judged");
}

static ng_status take_trial(session *s, const trial *t, uint64_t seed, ng_error *error) {
    for (size_t i = 0; i < t->list.count; i++) {
        const ng_case *one = &t->list.cases[i];
        const outcome *o = &t->shared->outcomes[i];
        fault *f = fault_of(s, one->kernel);
        if (!f) {
            take_right(s, t, one, o, seed);
            continue;
        }
        suite *in = suite_of(s, one->suite, error);
        if (!in) return NG_NO_MEMORY;
        if (!o->judged || o->result.verdict == NG_SKIP) continue;
        unsigned kills = kills_of(t, f, i);
        f->kills |= kills;
        f->cases++;
        in->judges[f - s->faults] = true;
        if (kills & own_verdicts) in->kills[f - s->faults] = true;
    }
    s->cases += atomic_load(&t->shared->done);
    return NG_OK;
}

/* The first seed judges everything; others the right kernels, beginning each at another place, until the deadline. */
static ng_status run_seed(session *s, int64_t place, double deadline_s, ng_error *error) {
    trial t = {.deadline_s = place ? deadline_s : 0};
    uint64_t seed = s->options.seed + (uint64_t)place;
    ng_status status = begin_trial(s, seed, place == 0, &t, error);
    if (!status) t.first_group = (size_t)place * t.group_count / (size_t)s->options.seeds;
    if (!status) status = run_trial(s, &t, error);
    if (!status) status = take_trial(s, &t, seed, error);
    end_trial(&t);
    return status;
}

/* ---- on paper -----------------------------------------------------------------------------------------------------*/
static bool survives(const fault *f) { return !(f->kills & own_verdicts); }

static size_t killed_by(const session *s, int judge) {
    size_t count = 0;
    for (size_t i = 0; i < s->fault_count; i++)
        count += s->faults[i].kills >> judge & 1;
    return count;
}

static void print_matrix(const session *s, FILE *out) {
    for (int judge = 0; judge < JUDGES; judge++)
        fprintf(out, "%c  %-13s %s\n", 'A' + judge, rule_of(judge)->name, rule_of(judge)->rule);
    fputc('\n', out);
    for (int judge = 0; judge < JUDGES; judge++)
        fprintf(out, "%c", 'A' + judge);
    fputs("  fault\n", out);
    for (size_t i = 0; i < s->fault_count; i++) {
        const fault *f = &s->faults[i];
        for (int judge = 0; judge < JUDGES; judge++)
            fputc(f->kills >> judge & 1 ? 'x' : '.', out);
        fprintf(out, "  %s%s%s\n", f->kernel->name, f->imitates ? ": " : "", f->imitates ? f->imitates : "");
    }
}

static void print_suites(const session *s, FILE *out) {
    fputc('\n', out);
    for (size_t i = 0; i < s->suite_count; i++) {
        size_t judged = 0, killed = 0;
        for (size_t f = 0; f < s->fault_count; f++) {
            judged += s->suites[i].judges[f];
            killed += s->suites[i].kills[f];
        }
        fprintf(out, "suite %-11s kills %zu of the %zu faults that run in it%s", s->suites[i].name, killed, judged, killed < judged ? "; not\n" : "\n");
        for (size_t f = 0; f < s->fault_count; f++)
            if (s->suites[i].judges[f] && !s->suites[i].kills[f]) fprintf(out, "      %s\n", s->faults[f].kernel->name);
    }
}

static void print_summary(const session *s, FILE *out) {
    fputc('\n', out);
    for (int judge = 0; judge < JUDGES; judge++) {
        fprintf(out, "%-13s kills %3zu of %zu", rule_of(judge)->name, killed_by(s, judge), s->fault_count);
        if (judge >= PEERS) fprintf(out, "; rejects right kernels in %zu of %zu cases", s->peer_alarms[judge - PEERS], s->right_cases);
        fputc('\n', out);
    }
    for (size_t i = 0; i < s->fault_count; i++)
        if (survives(&s->faults[i]))
            fprintf(out, "SURVIVES %s (%zu cases)\n", s->faults[i].kernel->name, s->faults[i].cases);
    fprintf(out, "%zu faults, %zu survive; %zu right kernels in %zu cases, %zu false alarms; %zu cases in %.1f s\n", s->fault_count,
            s->survived, s->right_count, s->right_cases, s->false_alarms, s->cases, s->seconds);
}

static void write_fault(ng_json *json, const fault *f) {
    ng_json_object(json, NULL);
    ng_json_text(json, "name", f->kernel->name);
    ng_json_text(json, "imitates", f->imitates);
    ng_json_text(json, "right", f->right ? f->right->name : NULL);
    ng_json_object(json, "kills");
    for (int judge = 0; judge < JUDGES; judge++)
        ng_json_bool(json, rule_of(judge)->name, f->kills >> judge & 1);
    ng_json_end_object(json);
    ng_json_end_object(json);
}

static void write_names(ng_json *json, const char *name, const session *s, const suite *in, bool killed) {
    ng_json_array(json, name);
    for (size_t f = 0; f < s->fault_count; f++)
        if (in->judges[f] && in->kills[f] == killed) ng_json_text(json, NULL, s->faults[f].kernel->name);
    ng_json_end_array(json);
}

static void write_json(const session *s, FILE *out) {
    ng_json json = {.out = out, .break_depth = 2};
    ng_json_object(&json, NULL);
    ng_json_array(&json, "faults");
    for (size_t i = 0; i < s->fault_count; i++)
        write_fault(&json, &s->faults[i]);
    ng_json_end_array(&json);
    ng_json_array(&json, "judges");
    for (int judge = 0; judge < JUDGES; judge++) {
        ng_json_object(&json, NULL);
        ng_json_text(&json, "name", rule_of(judge)->name);
        ng_json_text(&json, "rule", rule_of(judge)->rule);
        ng_json_integer(&json, "kills", (int64_t)killed_by(s, judge));
        if (judge >= PEERS) ng_json_integer(&json, "right_cases_rejected", (int64_t)s->peer_alarms[judge - PEERS]);
        ng_json_end_object(&json);
    }
    ng_json_end_array(&json);
    ng_json_array(&json, "suites");
    for (size_t i = 0; i < s->suite_count; i++) {
        ng_json_object(&json, NULL);
        ng_json_text(&json, "name", s->suites[i].name);
        write_names(&json, "kills", s, &s->suites[i], true);
        write_names(&json, "misses", s, &s->suites[i], false);
        ng_json_end_object(&json);
    }
    ng_json_end_array(&json);
    ng_json_object(&json, "summary");
    ng_json_integer(&json, "faults", (int64_t)s->fault_count);
    ng_json_integer(&json, "survived", (int64_t)s->survived);
    ng_json_integer(&json, "right_kernels", (int64_t)s->right_count);
    ng_json_integer(&json, "right_cases", (int64_t)s->right_cases);
    ng_json_integer(&json, "false_alarms", (int64_t)s->false_alarms);
    ng_json_double(&json, "seconds", s->seconds);
    ng_json_end_object(&json);
    ng_json_end_object(&json);
    fputc('\n', out);
}

/* ---- the command --------------------------------------------------------------------------------------------------*/
static ng_status run_all(session *s, ng_error *error) {
    double start = ng_monotonic_s();
    ng_status status = ng_output_open(s->options.json, &s->json, error);
    if (!status) status = run_seed(s, 0, 0, error);
    for (int64_t i = 1; i < s->options.seeds && !status; i++) { /* equal shares of the limit */
        double share_s = s->options.limit_s / (double)(s->options.seeds - 1);
        status = run_seed(s, i, s->options.limit_s > 0 ? ng_monotonic_s() + share_s : 0, error);
    }
    if (status) return status;
    s->seconds = ng_monotonic_s() - start;
    for (size_t i = 0; i < s->fault_count; i++)
        s->survived += survives(&s->faults[i]);
    FILE *out = s->json.stream == stdout ? stderr : stdout;
    if (!s->options.quiet) print_matrix(s, out);
    if (!s->options.quiet) print_suites(s, out);
    print_summary(s, out);
    if (s->json.stream) write_json(s, s->json.stream);
    return ng_output_commit(&s->json, error);
}

static void release(session *s) {
    ng_output_discard(&s->json);
    for (size_t i = 0; i < s->suite_count; i++) {
        free(s->suites[i].judges);
        free(s->suites[i].kills);
    }
    free(s->suites);
    free(s->faults);
    free(s->rights);
    free(s->planted);
    ng_plugins_free(&s->plugins);
    ng_args_free(option_rows, OPTIONS, &s->options, &s->args);
}

int ng_command_faults(const ng_program *program, int argc, char **argv) {
    ng_error error = {0};
    session s = {.program = program, .options = {.level = NG_CI, .seed = 1, .seeds = 1, .timeout_s = 60}};
    ng_status status = ng_args_parse(option_rows, OPTIONS, argc, argv, &s.options, &s.args, &error);
    if (!status && s.args.help) {
        ng_command_usage(stdout, program, "faults",
                         "Runs faulty kernels, and the right ones whose contracts they claim, through the case tables, and says\n"
                         "which judge sees which fault: narrowgauge's verdicts, and other projects' comparisons. Exit status 1 where\n"
                         "a fault survives or a right kernel is accused.");
        ng_args_help(stdout, option_rows, OPTIONS);
        goto done;
    }
    if (!status) status = gather(&s, &error);
    if (!status) status = run_all(&s, &error);
done:
    release(&s);
    if (status) return ng_no_verdict(program, "faults", error.text);
    return s.survived || s.false_alarms ? NG_EXIT_REGRESSION : NG_EXIT_OK;
}
