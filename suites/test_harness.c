/* The run machinery: what comes in wrong is one clear line, what goes out is well formed, and no case can lose a run. The
 * kernels here compute nothing; their names say how the judge below misbehaves. */
#include "harness/command.h"
#include "harness/journal.h"
#include "harness/junit.h"
#include "harness/run.h"
#include "harness/tap.h"
#include "harness/text.h"
#include "suites/test.h"

#include <cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void write_text(const char *path, const char *text, size_t length) {
    FILE *file = fopen(path, "w");
    cr_assert(file && fwrite(text, 1, length, file) == length && !fclose(file), "%s", path);
}

/* ---- a judge that misbehaves --------------------------------------------------------------------------------------*/
typedef struct fake_judge {
    bool wounded; /* an earlier case trampled on this process */
} fake_judge;

static ng_status fake_create(const ng_settings *settings, const ng_catalogue *catalogue, ng_judge **judge, ng_error *error) {
    (void)settings, (void)catalogue, (void)error;
    *judge = calloc(1, sizeof(fake_judge));
    return *judge ? NG_OK : NG_NO_MEMORY;
}

static void fake_free(ng_judge *judge) { free(judge); }

/* As a kernel's stray pointer would, also where a sanitizer has a handler of its own. */
static void segv(void) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static void die_soon(int number) {
    (void)number;
    _exit(7);
}

/* Figures that only exact writing brings back. */
static void fill_figures(ng_result *r, const char *id) {
    *r = (ng_result){.verdict = NG_PASS, .saturated = 0.1, .flushed = NAN, .verify_s = 0x1p-20, .nondeterministic = true};
    r->error = (ng_error_figures){.present = true, .max_abs = 0x1.23456789abcdep-7, .max_rel = 0x1p-1074, .max_ulp = 0.5,
                                  .rms_rel = 1.0 / 3, .bias = -0.0, .sqnr_db = INFINITY, .bound_ratio = 0.25,
                                  .expected_ratio = NAN, .worst = {3, 2}, .worst_computed = -INFINITY, .worst_exact = NAN,
                                  .worst_bound = 0x1.fffffffffffffp1023, .checked = 16, .elements = (int64_t)1 << 52};
    r->error.by_tier[NG_TIER_INTEGER] = 12;
    r->error.by_tier[NG_TIER_MPFR] = 4;
    r->prediction = (ng_prediction){true, 16, 0, {-1, -1}, "hopper-wgmma-fp8, promoted every 128"};
    r->speed = (ng_speed){.present = true, .median_s = 1e-6, .q1_s = 9e-7, .q3_s = 1.1e-6, .samples = 30, .flop = 1e9,
                          .rate = 1e15, .roofline = NAN, .part_count = 1, .algorithm = "one \"quoted\""};
    snprintf(r->speed.parts[0].name, sizeof r->speed.parts[0].name, "amax");
    r->speed.parts[0].median_s = 1e-7;
    snprintf(r->digest, sizeof r->digest, "%032x", (unsigned)strlen(id));
    snprintf(r->golden, sizeof r->golden, "unset");
    r->variant_count = 2;
    r->variants[0] = (ng_variant_result){.algorithm = "first \"choice\"", .differ = -1, .bound_ratio = NAN, .median_s = 1e-6};
    r->variants[1] = (ng_variant_result){.algorithm = "second", .differ = 3, .bound_ratio = 0.75, .median_s = NAN, .digest = "ab"};
}

static const char *behaviour(const ng_case *one) { return strrchr(one->kernel->name, '/') + 1; }

static ng_status fake_judge_case(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    fake_judge *own = (fake_judge *)(void *)judge;
    const char *how = behaviour(one);
    fill_figures(result, one->id);
    for (int v = 0; v < NG_VERDICTS; v++)
        if (!strcmp(how, ng_verdict_names[v])) {
            result->verdict = (ng_verdict)v;
            if (v != NG_PASS) snprintf(result->reason, sizeof result->reason, "made so <&> # \"here\"");
            return NG_OK;
        }
    if (own->wounded) segv();
    if (!strcmp(how, "segv")) segv();
    if (!strcmp(how, "aborts")) abort();
    if (!strcmp(how, "leaves")) exit(0);
    if (!strcmp(how, "kills")) raise(SIGKILL);
    if (!strcmp(how, "hangs"))
        for (;;)
            pause();
    if (!strcmp(how, "spins"))
        for (volatile int i = 0;; i = i + 1)
            ;
    if (!strcmp(how, "lies")) result->verdict = (ng_verdict)99;
    if (!strcmp(how, "prints")) puts("a kernel that prints");
    if (!strcmp(how, "wounds")) own->wounded = true;
    if (!strcmp(how, "dies-later")) {
        signal(SIGALRM, die_soon);
        ualarm(2000, 0);
    }
    if (!strcmp(how, "slow")) usleep(20000);
    if (!strcmp(how, "interrupts") && getenv("NG_TEST_INTERRUPT")) {
        kill(getppid(), SIGTERM);
        pause();
    }
    if (!strcmp(how, "once") && access("failed-once", F_OK)) { /* wrong the first time only */
        write_text("failed-once", "", 0);
        result->verdict = NG_FAIL;
        snprintf(result->reason, sizeof result->reason, "a cosmic ray");
    }
    if (!strcmp(how, "worse") && access("failed-once", F_OK)) {
        write_text("failed-once", "", 0);
        result->verdict = NG_FAIL;
        snprintf(result->reason, sizeof result->reason, "bad");
    } else if (!strcmp(how, "worse")) segv();
    if (!strcmp(how, "breaks")) return ng_fail(error, NG_INTERNAL, "the judge broke");
    return NG_OK;
}

static const ng_judge_functions misbehaving = {fake_create, fake_judge_case, fake_free};

/* ---- kernels and cases --------------------------------------------------------------------------------------------*/
static ng_status no_launch(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel, (void)launch;
    return NG_UNSUPPORTED;
}

#define KERNEL(how) {.name = "cast/e4m3/cpu/" how, .op = NG_OP_CAST, .in = NG_FP32, .in_b = NG_NO_FORMAT, .out = NG_E4M3, .launch = no_launch}

static const ng_kernel fake_kernels[] = {
    KERNEL("pass"),  KERNEL("fail"),   KERNEL("moved"),  KERNEL("crash"), KERNEL("timeout"),    KERNEL("skip"),
    KERNEL("xfail"), KERNEL("xpass"),  KERNEL("flake"),  KERNEL("vacuous"), KERNEL("a"),        KERNEL("b"),
    KERNEL("c"),     KERNEL("d"),      KERNEL("segv"),   KERNEL("aborts"), KERNEL("leaves"),    KERNEL("kills"),
    KERNEL("hangs"), KERNEL("spins"),  KERNEL("lies"),   KERNEL("prints"), KERNEL("wounds"),    KERNEL("dies-later"),
    KERNEL("slow"),  KERNEL("breaks"), KERNEL("interrupts"), KERNEL("z"),       KERNEL("once"),
    KERNEL("worse"),
};

static const ng_kernel *fake_kernel(const char *how) {
    for (size_t i = 0; i < COUNT(fake_kernels); i++)
        if (!strcmp(strrchr(fake_kernels[i].name, '/') + 1, how)) return &fake_kernels[i];
    cr_assert_fail("no kernel %s", how);
    return NULL;
}

/* A list of cases from behaviours, one after the other. */
static void make_list(const char *const *how, size_t count, ng_case *cases, ng_case_list *list) {
    for (size_t i = 0; i < count; i++) {
        cases[i] = (ng_case){.kernel = fake_kernel(how[i]), .suite = "fake", .problem = {.op = NG_OP_CAST, .m = 4, .n = 4}};
        snprintf(cases[i].id, NG_ID_BYTES, "%s/%zu", cases[i].kernel->name, i);
        snprintf(cases[i].problem_name, sizeof cases[i].problem_name, "4x4");
    }
    *list = (ng_case_list){cases, count};
}

/* ---- running a list -----------------------------------------------------------------------------------------------*/
typedef struct heard {
    ng_result results[32];
    int finished[32];
    size_t remarks;
    char remark[256];
} heard;

static void hear_start(void *context, size_t i) { (void)context, (void)i; }

static ng_status hear_result(void *context, size_t i, const ng_result *result, ng_error *error) {
    heard *h = context;
    (void)error;
    h->results[i] = *result;
    h->finished[i]++;
    return NG_OK;
}

static void hear_remark(void *context, const char *text) {
    heard *h = context;
    h->remarks++;
    snprintf(h->remark, sizeof h->remark, "%s", text);
}

static void run_behaviours(const char *const *how, size_t count, double timeout_s, heard *h) {
    ng_case cases[32];
    ng_case_list list;
    ng_error error = {0};
    int interrupted;
    const ng_settings settings = {.timeout_s = timeout_s};
    const ng_catalogue none = {0};
    *h = (heard){0};
    make_list(how, count, cases, &list);
    const ng_run_plan plan = {.list = &list, .settings = &settings, .catalogue = &none, .judge = &misbehaving};
    const ng_run_events events = {h, hear_start, hear_result, hear_remark};
    cr_assert_eq(ng_run_cases(&plan, &events, &interrupted, &error), NG_OK, "%s", error.text);
    cr_expect_eq(interrupted, 0);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(h->finished[i], 1, "%s: %d verdicts", cases[i].id, h->finished[i]);
}

static void expect_verdict(const heard *h, size_t i, ng_verdict verdict, const char *fragment) {
    cr_expect_eq(h->results[i].verdict, verdict, "case %zu: %s (%s), expected %s", i,
                 ng_verdict_names[h->results[i].verdict], h->results[i].reason, ng_verdict_names[verdict]);
    cr_expect(strstr(h->results[i].reason, fragment) != NULL, "case %zu: '%s' lacks '%s'", i, h->results[i].reason, fragment);
}

static void deaths_are_contained(void) {
    static const struct {
        const char *how;
        ng_verdict verdict;
        const char *fragment;
    } rows[] = {
        {"a", NG_PASS, ""},          {"segv", NG_CRASH, "SIGSEGV"},   {"b", NG_PASS, ""},
        {"aborts", NG_CRASH, "SIGABRT"}, {"leaves", NG_CRASH, "left with status 0"}, {"c", NG_PASS, ""},
        {"kills", NG_CRASH, "SIGKILL"}, {"segv", NG_CRASH, "SIGSEGV"}, {"lies", NG_CRASH, "sent what it should not"},
        {"breaks", NG_CRASH, "the judge broke"}, {"prints", NG_PASS, ""}, {"d", NG_PASS, ""},
    };
    const char *how[COUNT(rows)];
    heard h;
    for (size_t i = 0; i < COUNT(rows); i++)
        how[i] = rows[i].how;
    run_behaviours(how, COUNT(rows), 0, &h);
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect_verdict(&h, i, rows[i].verdict, rows[i].fragment);
        cr_expect(!strstr(h.results[i].reason, "to blame"), "case %zu accuses another", i);
    }
    cr_expect_eq(h.remarks, 0, "%s", h.remark);
}

static void limits_hold(void) {
    const char *const how[] = {"a", "hangs", "b", "spins", "slow", "c"};
    heard h;
    run_behaviours(how, COUNT(how), 0.3, &h);
    for (size_t i = 0; i < COUNT(how); i++)
        expect_verdict(&h, i, i == 1 || i == 3 ? NG_TIMEOUT : NG_PASS, i == 1 || i == 3 ? "no verdict after 0.3 s" : "");
}

/* What one case does to its process must not look like the next one's fault. */
static void neighbours_are_not_blamed(void) {
    const char *const wounded[] = {"a", "wounds", "b", "c"};
    const char *const late[] = {"a", "dies-later", "slow", "b"};
    heard h;
    run_behaviours(wounded, COUNT(wounded), 0, &h);
    expect_verdict(&h, 1, NG_PASS, "");
    expect_verdict(&h, 2, NG_CRASH, "alone in a fresh process it is pass, so an earlier case may be to blame, perhaps cast/e4m3/cpu/wounds/1");
    expect_verdict(&h, 3, NG_PASS, "");
    run_behaviours(late, COUNT(late), 0, &h);
    expect_verdict(&h, 2, NG_CRASH, "perhaps cast/e4m3/cpu/dies-later/1");
    expect_verdict(&h, 3, NG_PASS, "");
}

static ng_status broken_create(const ng_settings *settings, const ng_catalogue *catalogue, ng_judge **judge, ng_error *error) {
    (void)catalogue, (void)judge;
    if (settings->device == 1) segv();
    return ng_fail(error, NG_DEVICE, "no such device");
}

static void a_judge_that_cannot_be_made(void) {
    const ng_judge_functions broken = {broken_create, fake_judge_case, fake_free};
    const char *const how[] = {"a"}, *const expected[] = {"no such device", "died of SIGSEGV"};
    ng_case cases[1];
    ng_case_list list;
    const ng_catalogue none = {0};
    heard h = {0};
    make_list(how, 1, cases, &list);
    for (int device = 0; device < 2; device++) {
        const ng_settings settings = {.device = device};
        const ng_run_plan plan = {.list = &list, .settings = &settings, .catalogue = &none, .judge = &broken};
        const ng_run_events events = {&h, hear_start, hear_result, hear_remark};
        ng_error error = {0};
        int interrupted;
        cr_expect_neq(ng_run_cases(&plan, &events, &interrupted, &error), NG_OK);
        cr_expect(strstr(error.text, expected[device]), "%s", error.text);
    }
    cr_expect_eq(h.finished[0], 0);
}

/* ---- the program, in a process of its own -------------------------------------------------------------------------*/
static const ng_distribution normal_data[] = {NG_NORMAL, NG_DISTRIBUTIONS};
static const ng_case_row fake_rows[] = {
    {"fake", NG_OP_CAST, "cast/e4m3/cpu/*", "one", 4, 4, 0, normal_data, NG_PREQUANTIZED, .level = NG_SMOKE, .repeats = 1},
};
static const ng_build fake_build = {.version = "0", .commit = "", .compiler = "cc", .compiler_flags = "", .nvcc = "",
                                    .nvcc_flags = "", .kernels_digest = "0"};
static const ng_command fake_commands[] = {
    {"run", "run", ng_command_run}, {"list", "list", ng_command_list}, {"shapes", "shapes", ng_command_shapes},
};

typedef struct said {
    int status; /* exit status, or 1000 + signal */
    char out[1 << 16], err[1 << 14];
} said;

static void read_back(const char *path, char *text, size_t capacity) {
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s: %s", path, strerror(errno));
    size_t n = fread(text, 1, capacity - 1, file);
    text[n] = 0;
    fclose(file);
}

/* Every test works in a folder of its own, which is removed at its end. */
static void enter_folder(char folder[64]) {
    snprintf(folder, 64, "/tmp/ng-harness-XXXXXX");
    cr_assert(mkdtemp(folder) && !chdir(folder), "%s: %s", folder, strerror(errno));
}

static void leave_folder(const char *folder) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect(!chdir("/") && !system(command));
}

static int run_program(int argc, char **argv) {
    const ng_kernel *kernels[COUNT(fake_kernels)];
    for (size_t i = 0; i < COUNT(fake_kernels); i++)
        kernels[i] = &fake_kernels[i];
    const ng_program program = {
        .name = "narrowgauge", .summary = "test", .build = &fake_build, .commands = fake_commands,
        .command_count = COUNT(fake_commands), .kernels = kernels, .kernel_count = COUNT(fake_kernels), .rows = fake_rows,
        .row_count = COUNT(fake_rows), .judge = &misbehaving,
    };
    return ng_program_main(&program, argc, argv);
}

/* line: words separated by single spaces. */
static void say(const char *line, said *s) {
    char words[1024], *argv[64] = {"narrowgauge"}, *rest = words;
    int argc = 1, status;
    snprintf(words, sizeof words, "%s", line);
    for (char *word; (word = strtok_r(rest, " ", &rest)) && argc < 63;)
        argv[argc++] = word;
    fflush(NULL);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (!pid) {
        if (!freopen("said.out", "w", stdout) || !freopen("said.err", "w", stderr)) _exit(99);
        status = run_program(argc, argv);
        fflush(NULL);
        _exit(status);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    read_back("said.out", s->out, sizeof s->out);
    read_back("said.err", s->err, sizeof s->err);
}

static size_t count_lines(const char *text) {
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

typedef struct line_row {
    const char *line;
    int status;
    const char *fragment; /* of standard error */
} line_row;

static void expect_lines(const line_row *rows, size_t count) {
    said *s = malloc(sizeof *s);
    for (size_t i = 0; i < count; i++) {
        say(rows[i].line, s);
        cr_expect_eq(s->status, rows[i].status, "%s: exit %d, expected %d (%s)", rows[i].line, s->status, rows[i].status, s->err);
        cr_expect(strstr(s->err, rows[i].fragment), "%s: '%s' lacks '%s'", rows[i].line, s->err, rows[i].fragment);
        if (rows[i].status == 2) cr_expect_eq(count_lines(s->err), 1, "%s: not one line: %s", rows[i].line, s->err);
    }
    free(s);
}

static void bad_arguments(void) {
    static const line_row rows[] = {
        {"", 2, "no command; --help lists the commands"},
        {"rnu", 2, "unknown command 'rnu'; did you mean 'run'?"},
        {"frobnicate", 2, "unknown command 'frobnicate'; --help"},
        {"run --levle ci", 2, "unknown option --levle; did you mean --level?"},
        {"run --level", 2, "--level needs a value: smoke|ci|nightly"},
        {"run --level cii", 2, "--level 'cii': did you mean 'ci'? Expected one of smoke, ci, nightly"},
        {"run --level week", 2, "--level 'week': expected one of smoke, ci, nightly"},
        {"run --seed -1", 2, "--seed '-1': expected a whole number from 0 to 2^64 - 1"},
        {"run --seed 18446744073709551616", 2, "--seed '18446744073709551616': expected"},
        {"run --seed 1x", 2, "--seed '1x': expected"},
        {"run --batch 0 --model x", 2, "--batch '0': expected a whole number from 1 to"},
        {"run --batch 4", 2, "--batch needs --model FILE"},
        {"run --shape 4x4", 2, "--shape '4x4': expected MxNxK"},
        {"run --shape 4x4x99999999999999999999", 2, "--shape '4x4x99999999999999999999': expected MxNxK"},
        {"run --shape 4x0x4", 2, "expected MxNxK"},
        {"run --shape 4x-4x4", 2, "expected MxNxK"},
        {"run --shape 4x4x4 --model m.json", 2, "exclude each other"},
        {"run --backend gpu", 2, "--backend 'gpu': "},
        {"run --backend cuda", 2, "built without cuda kernels"},
        {"run --data norml", 2, "norml"},
        {"run --mode fast", 2, "--mode 'fast': expected one of prequantized, autocast"},
        {"run --model nowhere.json", 2, "nowhere.json"},
        {"run --tensors nowhere.npy", 2, "nowhere.npy"},
        {"run --x nowhere.npy", 2, "give two or three of --x, --w and --dy"},
        {"run --timeout soon", 2, "--timeout 'soon': expected seconds"},
        {"run --timeout nan", 2, "expected seconds"},
        {"run --threads 0", 2, "--threads '0': expected a whole number from 1 to 4096"},
        {"run --tag key", 2, "--tag 'key': expected KEY=VALUE"},
        {"run --tag a=1 --tag a=2", 2, "--tag a is given twice"},
        {"run --save sometimes", 2, "--save 'sometimes': expected one of"},
        {"run --save-dir d", 2, "--save-dir needs --save"},
        {"run --no-speed=1", 2, "--no-speed takes no value"},
        {"run --t 1", 2, "--t is ambiguous: --tensor-parallel, --tensors, --tap, --tag, --timeout, --threads"},
        {"run -y", 2, "unknown option -y; --help"},
        {"run surplus", 2, "unexpected argument 'surplus'"},
        {"run --json a --junit a", 2, "two outputs cannot both go to a"},
        {"run --json - --tap -", 2, "two outputs cannot both go to standard output"},
        {"run --filter nothing/like/this", 2, "nothing/like/this"},
        {"run --plugin nowhere.so", 2, "nowhere.so: cannot be read"},
        {"run --resume nowhere.journal", 2, "nowhere.journal: cannot be read"},
        {"shapes", 2, "--model FILE is needed"},
        {"list --level x", 2, "--level 'x'"},
        {"list --timeout 3", 2, "unknown option --timeout"},
    };
    char folder[64];
    enter_folder(folder);
    expect_lines(rows, COUNT(rows));
    leave_folder(folder);
}

static void help_and_lists(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    static const struct {
        const char *line, *fragment;
    } rows[] = {
        {"--help", "COMMAND --help"},  {"--version", "narrowgauge 0"},  {"run --help", "--resume JOURNAL"},
        {"list --help", "--filter GLOB"}, {"shapes -h", "--model FILE"}, {"list -f *cpu/pass*", "cast/e4m3/cpu/pass/"},
        {"run --dry-run -f *cpu/pass*", "cast/e4m3/cpu/pass/"}, {"list -o - -f *cpu/pass*", "\"schema\": \"narrowgauge.list/1\""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        say(rows[i].line, s);
        cr_expect_eq(s->status, 0, "%s: exit %d: %s", rows[i].line, s->status, s->err);
        cr_expect(strstr(s->out, rows[i].fragment), "%s: '%s' lacks '%s'", rows[i].line, s->out, rows[i].fragment);
        cr_expect_str_empty(s->err);
    }
    free(s);
    leave_folder(folder);
}

/* Design: 0 no regression; 1 failed, moved, crashed, timed out, vacuous or fixed without notice; 2 no verdict. */
static void exit_status_of_each_verdict(void) {
    static const line_row rows[] = {
        {"run -q -f *cpu/pass/*", 0, ""},    {"run -q -f *cpu/fail/*", 1, ""},    {"run -q -f *cpu/moved/*", 1, ""},
        {"run -q -f *cpu/crash/*", 1, ""},   {"run -q -f *cpu/timeout/*", 1, ""}, {"run -q -f *cpu/vacuous/*", 1, ""},
        {"run -q -f *cpu/xpass/*", 1, ""},   {"run -q -f *cpu/xfail/*", 0, ""},   {"run -q -f *cpu/flake/*", 0, ""},
        {"run -q -f *cpu/skip/*", 2, "nothing was executed: made so"},
        {"run -q -f *cpu/skip/* -f *cpu/pass/*", 0, ""},
        {"run -q -f *cpu/skip/* -f *cpu/fail/*", 1, ""},
    };
    char folder[64];
    enter_folder(folder);
    expect_lines(rows, COUNT(rows));
    leave_folder(folder);
}

static void unwritable_outputs(void) {
    static const line_row rows[] = {
        {"run --json nowhere/r.json -f *cpu/pass/*", 2, "nowhere/r.json: cannot be written"},
        {"run --junit . -f *cpu/pass/*", 2, ".: cannot be written: it is a directory"},
        {"run --tap nowhere/t -f *cpu/pass/*", 2, "nowhere/t: cannot be written"},
        {"run --journal nowhere/j -f *cpu/pass/*", 2, "nowhere/j: cannot be written"},
        {"run --save always --save-dir nowhere/d -f *cpu/pass/*", 2, "nowhere/d: cannot be made"},
        {"run -q --json /dev/full --journal kept.journal -f *cpu/pass/*", 2, "/dev/full: could not be written: No space left on device"},
        {"list --json /dev/full", 2, "/dev/full: could not be written"},
        {"run -q --resume kept.journal --json late.json", 0, "1 of 1 cases are done already"},
        {"run -q --journal kept.journal -f *cpu/pass/*", 2, "kept.journal: is there already"},
    };
    char folder[64];
    enter_folder(folder);
    expect_lines(rows, COUNT(rows));
    cr_expect_eq(access("late.json", F_OK), 0, "what was done before the disk was full is lost");
    leave_folder(folder);
}

/* A full standard output is noticed. */
static void full_standard_output(void) {
    fflush(NULL);
    pid_t pid = fork();
    int status;
    if (!pid) {
        char *argv[] = {"narrowgauge", "list", NULL};
        if (!freopen("/dev/full", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(99);
        _exit(run_program(2, argv));
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

/* ---- records ------------------------------------------------------------------------------------------------------*/
static char *slurp(const char *path) {
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *text = calloc((size_t)length + 1, 1);
    cr_assert(text && fread(text, 1, (size_t)length, file) == (size_t)length);
    fclose(file);
    return text;
}

/* As much of JSON Schema as the schema uses: type, const, enum, required, properties, additionalProperties, items,
 * minItems, maxItems, $ref into $defs. Returns false and says where. */
static bool type_is(const cJSON *value, const char *type) {
    return (!strcmp(type, "object") && cJSON_IsObject(value)) || (!strcmp(type, "array") && cJSON_IsArray(value)) ||
           (!strcmp(type, "string") && cJSON_IsString(value)) || (!strcmp(type, "boolean") && cJSON_IsBool(value)) ||
           (!strcmp(type, "null") && cJSON_IsNull(value)) || (!strcmp(type, "number") && cJSON_IsNumber(value)) ||
           (!strcmp(type, "integer") && cJSON_IsNumber(value) && value->valuedouble == floor(value->valuedouble));
}

static bool type_fits(const cJSON *value, const cJSON *type) {
    const cJSON *one;
    if (!type) return true;
    if (cJSON_IsString(type)) return type_is(value, type->valuestring);
    cJSON_ArrayForEach(one, type) if (type_is(value, one->valuestring)) return true;
    return false;
}

static bool value_fits(const cJSON *value, const cJSON *schema) {
    const cJSON *constant = cJSON_GetObjectItem(schema, "const"), *choices = cJSON_GetObjectItem(schema, "enum"), *one;
    if (constant && !cJSON_Compare(value, constant, true)) return false;
    if (!choices) return true;
    cJSON_ArrayForEach(one, choices) if (cJSON_Compare(value, one, true)) return true;
    return false;
}

static bool validates(const cJSON *value, const cJSON *schema, const cJSON *root, const char *where) {
    const cJSON *reference = cJSON_GetObjectItem(schema, "$ref"), *one;
    if (reference) schema = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "$defs"), reference->valuestring + strlen("#/$defs/"));
    cr_assert(schema, "%s: a $ref that leads nowhere", where);
    bool ok = type_fits(value, cJSON_GetObjectItem(schema, "type")) && value_fits(value, schema);
    if (cJSON_IsObject(value)) {
        const cJSON *properties = cJSON_GetObjectItem(schema, "properties"), *more = cJSON_GetObjectItem(schema, "additionalProperties");
        cJSON_ArrayForEach(one, cJSON_GetObjectItem(schema, "required"))
            if (!cJSON_GetObjectItemCaseSensitive(value, one->valuestring)) ok = false;
        cJSON_ArrayForEach(one, value) {
            const cJSON *inner = cJSON_GetObjectItemCaseSensitive(properties, one->string);
            if (!inner && cJSON_IsFalse(more)) ok = false;
            if (!inner && cJSON_IsObject(more)) inner = more;
            if (inner && !validates(one, inner, root, one->string)) return false;
        }
    }
    if (cJSON_IsArray(value)) {
        const cJSON *items = cJSON_GetObjectItem(schema, "items"), *least = cJSON_GetObjectItem(schema, "minItems");
        if (least && cJSON_GetArraySize(value) < least->valueint) ok = false;
        cJSON_ArrayForEach(one, value) if (items && !validates(one, items, root, where)) return false;
    }
    if (!ok) fprintf(stderr, "%s does not fit the schema\n", where);
    return ok;
}

static void record_fits_its_schema(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    char *schema_text = slurp(NG_SCHEMA_FILE);
    cJSON *schema = cJSON_Parse(schema_text);
    cr_assert(schema, "the schema is no JSON");
    enter_folder(folder);
    say("run -q --json r.json --tag a=b --seed 18446744073709551615 --timeout 5 -f *cpu/pass/* -f *cpu/fail/* -f *cpu/segv/*", s);
    cr_expect_eq(s->status, 1);
    char *text = slurp("r.json");
    cJSON *record = cJSON_Parse(text);
    cr_assert(record, "%s", text);
    cr_expect(validates(record, schema, schema, "record"));
    cr_expect(strstr(text, "\"seed\": 18446744073709551615"), "64 bits are lost");
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(record, "cases")), 3);
    cr_expect(strstr(text, "\"max_abs\": 0.0088888888888888871") && strstr(text, "\"sqnr_db\": null"), "%s", text);
    cr_expect(strstr(text, "narrowgauge run --timeout") == NULL && strstr(text, "narrowgauge run --filter 'cast/e4m3/cpu/fail/"));
    cr_expect(access("r.json.journal", F_OK), "the journal of a run that ended is left");
    /* The same record with a member taken away, of another type, or added, must not fit. */
    cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(record, "cases"), 0);
    cJSON *status = cJSON_DetachItemFromObject(first, "status");
    cr_expect_not(validates(record, schema, schema, "without status"));
    cJSON_AddItemToObject(first, "status", status);
    cJSON_SetValuestring(status, "fine");
    cr_expect_not(validates(record, schema, schema, "unknown status"));
    cJSON_SetValuestring(status, "pass");
    cr_expect(validates(record, schema, schema, "repaired"));
    cJSON_AddTrueToObject(first, "surplus");
    cr_expect_not(validates(record, schema, schema, "surplus member"));
    cJSON_Delete(record);
    cJSON_Delete(schema);
    free(text);
    free(schema_text);
    free(s);
    leave_folder(folder);
}

/* NaN, infinities, -0, subnormals and the largest double come back with their bits. */
static void results_survive_json(void) {
    ng_result before, after;
    char *text = NULL;
    size_t length;
    ng_error error = {0};
    fill_figures(&before, "some/id");
    snprintf(before.reason, sizeof before.reason, "tab\t quote\" backslash\\ newline\n \x01 \xc3\xa9");
    FILE *out = open_memstream(&text, &length);
    ng_json json = {.out = out, .exact = true};
    ng_json_object(&json, NULL);
    ng_result_write(&json, &before);
    ng_json_end_object(&json);
    fclose(out);
    cJSON *object = cJSON_Parse(text);
    cr_assert(object, "%s", text);
    cr_assert_eq(ng_result_read(object, &after, &error), NG_OK, "%s", error.text);
    const double *a = &before.error.max_abs, *b = &after.error.max_abs;
    for (int i = 0; i < 8; i++)
        cr_expect(!memcmp(&a[i], &b[i], sizeof a[i]) || (isnan(a[i]) && isnan(b[i])), "figure %d: %a became %a", i, a[i], b[i]);
    cr_expect(after.error.worst_computed == -INFINITY && isnan(after.error.worst_exact) && signbit(after.error.bias));
    cr_expect_eq(after.error.elements, before.error.elements);
    cr_expect_eq(after.error.by_tier[NG_TIER_MPFR], 4);
    cr_expect_str_eq(after.reason, before.reason);
    cr_expect_str_eq(after.speed.algorithm, before.speed.algorithm);
    cr_expect_str_eq(after.speed.parts[0].name, "amax");
    cr_expect_eq(after.prediction.first[0], -1);
    cr_assert_eq(after.variant_count, 2);
    cr_expect_str_eq(after.variants[0].algorithm, before.variants[0].algorithm);
    cr_expect(after.variants[0].differ == -1 && isnan(after.variants[0].bound_ratio) && after.variants[1].differ == 3);
    cr_expect(after.variants[1].bound_ratio == 0.75 && isnan(after.variants[1].median_s));
    cr_expect_str_eq(after.variants[1].digest, "ab");
    cr_expect(after.nondeterministic);
    cJSON_Delete(object);
    free(text);
}

static void strings_become_utf8(void) {
    static const struct {
        const char *bytes, *json;
    } rows[] = {
        {"plain", "\"plain\""},
        {"\"\\/", "\"\\\"\\\\/\""},
        {"\n\t\x01\x7f", "\"\\n\\t\\u0001\\u007f\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"a\xff" "b", "\"a\xef\xbf\xbd" "b\""},                        /* no such byte */
        {"\xc3", "\"\xef\xbf\xbd\""},                                  /* cut short */
        {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                  /* overlong '/' */
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},  /* a surrogate */
        {"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* above U+10FFFF */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *text = NULL;
        size_t length;
        FILE *out = open_memstream(&text, &length);
        ng_json_quote(out, rows[i].bytes);
        fclose(out);
        cr_expect_str_eq(text, rows[i].json, "row %zu: %s, expected %s", i, text, rows[i].json);
        free(text);
    }
}

static void words_are_quoted(void) {
    static const struct {
        const char *word, *shell, *glob;
    } rows[] = {
        {"gemm/e4m3", "gemm/e4m3", "gemm/e4m3"},
        {"a b", "'a b'", "a b"},
        {"", "''", ""},
        {"it's", "'it'\\''s'", "it's"},
        {"w[0]*?\\", "'w[0]*?\\'", "w\\[0]\\*\\?\\\\"},
        {"$(rm)", "'$(rm)'", "$(rm)"},
    };
    char text[64];
    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect_eq(ng_shell_quote(rows[i].word, text, sizeof text), strlen(rows[i].shell));
        cr_expect_str_eq(text, rows[i].shell);
        ng_glob_quote(rows[i].word, text, sizeof text);
        cr_expect_str_eq(text, rows[i].glob);
    }
    cr_expect_gt(ng_shell_quote("a b", text, 3), 3); /* says that it did not fit */
    cr_expect_lt(strlen(text), 3);
}

/* Ids and reasons that would break a careless writer. */
static void make_nasty(ng_case *cases, ng_case_list *list, ng_result *results) {
    static const char *const how[] = {"pass", "fail", "skip", "xfail", "xpass", "crash", "flake"};
    make_list(how, COUNT(how), cases, list);
    for (size_t i = 0; i < COUNT(how); i++) {
        fill_figures(&results[i], "");
        for (int v = 0; v < NG_VERDICTS; v++)
            if (!strcmp(how[i], ng_verdict_names[v])) results[i].verdict = (ng_verdict)v;
        snprintf(results[i].reason, sizeof results[i].reason, "a <b> & \"c\" # d\x02 \xff end");
    }
    snprintf(cases[1].id, NG_ID_BYTES, "w # <'\">&\x01.weight");
}

static void junit_is_escaped(void) {
    static const char *const fragments[] = {
        "tests=\"7\" failures=\"2\" errors=\"1\" skipped=\"2\"",
        "<testcase classname=\"fake/cast\" name=\"cast/e4m3/cpu/pass/0\"",
        "name=\"w # &lt;'&quot;&gt;&amp;\xef\xbf\xbd.weight\"",
        "<skipped message=\"a &lt;b&gt; &amp; &quot;c&quot; # d\xef\xbf\xbd \xef\xbf\xbd end\"/>",
        "<failure message=\"a &lt;b&gt; &amp;", "type=\"xpass\"", "<error message=", "--seed 7</failure>",
    };
    ng_case cases[8];
    ng_result results[8];
    ng_case_list list;
    ng_fingerprint fingerprint = {0};
    char *text = NULL;
    size_t length;
    make_nasty(cases, &list, results);
    const ng_run_record run = {.id = "0", .started = "2026-01-01T00:00:00Z", .seed = 7, .fingerprint = &fingerprint, .list = &list, .results = results};
    FILE *out = open_memstream(&text, &length);
    ng_junit_write(out, &run);
    fclose(out);
    for (size_t i = 0; i < COUNT(fragments); i++)
        cr_expect(strstr(text, fragments[i]), "no '%s' in\n%s", fragments[i], text);
    for (size_t i = 0; i < length; i++)
        cr_expect((unsigned char)text[i] >= 0x20 || text[i] == '\n', "control character %d", text[i]);
    free(text);
}

static void tap_is_numbered(void) {
    static const char *const fragments[] = {
        "TAP version 13\n1..7\nok 1 - cast/e4m3/cpu/pass/0\nnot ok 2 - w _ <'\">& .weight\n  ---\n  status: fail\n",
        "\nok 3 - cast/e4m3/cpu/skip/2 # SKIP a <b> & \"c\" _ d", "\nnot ok 4 - cast/e4m3/cpu/xfail/3 # TODO a",
        "\nok 5 - cast/e4m3/cpu/xpass/4 # TODO a", "\nnot ok 6 - ", "\nok 7 - ", "  seed: 7\n", "  repro: \"narrowgauge run ",
    };
    ng_case cases[8];
    ng_result results[8];
    ng_case_list list;
    char *text = NULL;
    size_t length;
    make_nasty(cases, &list, results);
    const ng_run_record run = {.seed = 7, .list = &list, .results = results};
    FILE *out = open_memstream(&text, &length);
    ng_tap_begin(out, list.count);
    for (size_t i = 0; i < list.count; i++)
        ng_tap_case(out, &run, i);
    fclose(out);
    for (size_t i = 0; i < COUNT(fragments); i++)
        cr_expect(strstr(text, fragments[i]), "no '%s' in\n%s", fragments[i], text);
    free(text);
}

/* Standard output holds the record alone, whatever kernels print. */
static void standard_output_is_one_record(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    say("run --json - -f *cpu/prints/* -f *cpu/pass/*", s);
    cr_expect_eq(s->status, 0, "%s", s->err);
    cJSON *record = cJSON_Parse(s->out);
    cr_expect(record != NULL && s->out[0] == '{', "%s", s->out);
    cr_expect(strstr(s->err, "a kernel that prints") && strstr(s->err, "2 cases in"));
    cr_expect(!strchr(s->err, '\r') && !strchr(s->err, '\033'), "something moves or is coloured in a pipe");
    cJSON_Delete(record);
    say("run --tap - -f *cpu/prints/* -f *cpu/pass/*", s);
    cr_expect(!strncmp(s->out, "TAP version 13\n1..2\nok 1 - ", 27) && !strstr(s->out, "prints\n"), "%s", s->out);
    free(s);
    leave_folder(folder);
}

/* The line that a failure prints runs that case and no other. */
static void repro_runs_one_case(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    say("run --seed 5 --level ci --backend cpu --no-speed -f *cpu/fail/* -f *cpu/pass/*", s);
    const char *line = strstr(s->out, "narrowgauge run --backend cpu --level ci --filter 'cast/e4m3/cpu/fail/");
    cr_assert(line, "%s", s->out);
    char words[512], *w = words;
    for (line += strlen("narrowgauge "); *line && *line != '\n'; line++)
        if (*line != '\'') *w++ = *line;
    *w = 0;
    say(words, s);
    cr_expect_eq(s->status, 1);
    cr_expect(strstr(s->out, "1 case in") && strstr(s->out, "1 fail"), "%s: %s", words, s->out);
    free(s);
    leave_folder(folder);
}

/* ---- journals -----------------------------------------------------------------------------------------------------*/
/* A journal torn at any byte of its last line loses that line and nothing else. */
static void torn_journals(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    say("run -q --json /dev/full --journal j -f *cpu/a/* -f *cpu/b/* -f *cpu/c/*", s); /* no end line */
    cr_assert_eq(s->status, 2, "%s", s->err);
    char *whole = slurp("j");
    size_t length = strlen(whole), last = length - 1;
    while (whole[last - 1] != '\n')
        last--;
    write_text("torn", whole, length);
    for (size_t cut = length; cut >= last; cut--) {
        ng_journal_past past;
        ng_error error = {0};
        cr_assert_eq(truncate("torn", (off_t)cut), 0);
        cr_assert_eq(ng_journal_read("torn", &past, &error), NG_OK, "cut at %zu: %s", cut, error.text);
        cr_expect_eq(past.count, cut == length ? 3 : 2, "cut at %zu: %zu cases", cut, past.count);
        cr_expect_eq(past.whole_bytes, cut == length ? length : last);
        cr_expect_not(past.ended);
        ng_journal_past_free(&past);
    }
    /* A power cut may also leave blocks of zeros where the last line was to be. */
    char *zeros = calloc(length + 1, 1);
    memcpy(zeros, whole, last);
    zeros[length - 1] = '\n';
    write_text("torn", zeros, length);
    say("run -q --resume torn --json r.json", s);
    cr_expect_eq(s->status, 0, "%s", s->err);
    char *healed = slurp("torn");
    cr_expect_eq(count_lines(healed), 5, "%s", healed); /* header, three cases, end */
    free(healed);
    free(zeros);
    free(whole);
    free(s);
    leave_folder(folder);
}

static char *replaced(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    char *out = NULL;
    cr_assert(at, "no '%s'", from);
    cr_assert_geq(asprintf(&out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)), 0);
    return out;
}

static void foreign_journals(void) {
    static const struct {
        const char *from, *to, *fragment;
    } rows[] = {
        {"narrowgauge.journal/1", "narrowgauge.journal/2", "is a narrowgauge.journal/2; this program knows narrowgauge.journal/1"},
        {"narrowgauge.journal/1", "other.journal/1", "is no journal of narrowgauge"},
        {"{\"schema\"", "[\"schema\"", "is no journal of narrowgauge"},
        {"\"argv\"", "\"words\"", "its header lacks"},
        {"\"seed\": \"1\"", "\"seed\": \"2\"", "is of a run with --seed 2"},
        {"cpu/a/*", "cpu/d/*", "is of a run of other cases"},
        {"\"selection\": \"", "\"selection\": \"0", "is of a run of other cases"},
        {"\"host\": \"", "\"host\": \"0", "was written with another host"},
        {"\"program\": \"", "\"program\": \"0", "was written with another program"},
        {"{\"case\": 0", "{\"case\": 1", "is no case of this run"},
        {"{\"case\": 1, \"id\": \"cast/e4m3/cpu/b", "{\"case\": 0, \"id\": \"cast/e4m3/cpu/a", "is there twice"},
        {"{\"case\": 0", "{\"case\": 9", "is no case of this run"},
        {"{\"case\": 0", "{\"case\": -1", ":2: neither a case nor an end"},
        {"\"status\": \"pass\"", "\"status\": \"fine\"", ":2: member \"status\" names no status"},
        {"\"max_abs\": 0", "\"max_abs\": true, \"x\": 0", ":2: member \"max_abs\" is not what it should be"},
        {"\"tier\": {", "\"tier\": {\"guess\": 1, ", ":2: member \"tier\" names no tier 'guess'"},
        {"{\"case\": 0", "{{\"case\": 0", ":2: is no JSON"},
        {"{\"case\": 0", "{\"end\": \"now\"}\n{\"case\": 0", ":3: a case after the end line"},
        {"run", "ruin", "is of no run"},
    };
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    say("run -q --journal j -f *cpu/a/* -f *cpu/b/*", s);
    cr_assert_eq(s->status, 0, "%s", s->err);
    char *whole = slurp("j");
    for (size_t i = 0; i < COUNT(rows); i++) {
        /* "run" as the command's word in argv. */
        char *text = i + 1 == COUNT(rows) ? replaced(whole, "\"run\", \"-q\"", "\"ruin\", \"-q\"") : replaced(whole, rows[i].from, rows[i].to);
        write_text("foreign", text, strlen(text));
        say("run -q --resume foreign", s);
        cr_expect_eq(s->status, 2, "row %zu: exit %d", i, s->status);
        cr_expect(strstr(s->err, rows[i].fragment), "row %zu: '%s' lacks '%s'", i, s->err, rows[i].fragment);
        cr_expect_eq(count_lines(s->err), 1, "row %zu: %s", i, s->err);
        char *after = slurp("foreign");
        cr_expect_str_eq(after, text, "row %zu: a journal that was refused was changed", i);
        free(after);
        free(text);
    }
    static const line_row others[] = {
        {"run --resume .", 2, "is no journal"},
        {"run --resume empty", 2, "empty: holds no whole header line"},
        {"run --resume j --journal k", 2, "no --journal"},
        {"run --resume j --seed 3", 2, "is of a run with --seed 1, this one has 3"},
        {"run --resume j --filter *cpu/c/*", 2, "--resume goes on with the cases of its journal: --filter cannot choose among them"},
        {"run -q --resume j", 0, "2 of 2 cases are done already"},
    };
    write_text("empty", "", 0);
    expect_lines(others, COUNT(others));
    free(whole);
    free(s);
    leave_folder(folder);
}

/* A run that SIGTERM breaks off in its third case, then resumed, gives the record of one that was left alone. */
static void resumed_equals_uninterrupted(void) {
    static const char selection[] = "-f *cpu/a/* -f *cpu/fail/* -f *cpu/segv/* -f *cpu/interrupts/* -f *cpu/z/*";
    char folder[64], line[512];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    snprintf(line, sizeof line, "run -q --json whole.json %s", selection);
    say(line, s);
    cr_assert_eq(s->status, 1, "%s", s->err);
    setenv("NG_TEST_INTERRUPT", "1", 1);
    snprintf(line, sizeof line, "run -q --json parts.json %s", selection);
    say(line, s);
    unsetenv("NG_TEST_INTERRUPT");
    cr_expect_eq(s->status, 2);
    cr_expect(strstr(s->err, "SIGTERM after 3 of 5 cases; go on with: narrowgauge run --resume parts.json.journal"), "%s", s->err);
    cr_expect(access("parts.json", F_OK), "a run that broke off left a record");
    say("run -q --resume parts.json.journal", s);
    cr_expect_eq(s->status, 1, "%s", s->err);
    char *whole = slurp("whole.json"), *parts = slurp("parts.json");
    const char *a = strstr(whole, "\"cases\""), *b = strstr(parts, "\"cases\"");
    cr_assert(a && b);
    cr_expect_str_eq(a, b);
    free(whole);
    free(parts);
    free(s);
    leave_folder(folder);
}

/* SIGKILL of the whole run: the worker goes with it, and what was done is there. */
static void a_killed_run_resumes(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    int status;
    enter_folder(folder);
    pid_t pid = fork();
    if (!pid) {
        char *argv[] = {"narrowgauge", "run", "-q", "--journal", "j", "-f", "*cpu/a/*", "-f", "*cpu/hangs/*", "-f", "*cpu/z/*", NULL};
        _exit(run_program(11, argv));
    }
    for (int i = 0; i < 200; i++) {
        usleep(10000);
        if (access("j", F_OK)) continue;
        char *text = slurp("j");
        size_t lines = count_lines(text);
        free(text);
        if (lines == 2) break;
    }
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    say("run -q --resume j --timeout 0.2", s);
    cr_expect_eq(s->status, 1, "%s", s->err);
    cr_expect(strstr(s->err, "1 of 3 cases are done already"), "%s", s->err);
    cr_expect(strstr(s->out, "timeout") && strstr(s->out, "cpu/hangs/"), "%s", s->out);
    free(s);
    leave_folder(folder);
}

static void two_runs_share_no_journal(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    say("run -q --json /dev/full --journal j -f *cpu/a/*", s);
    ng_journal_past past;
    ng_journal first, second;
    ng_error error = {0};
    cr_assert_eq(ng_journal_read("j", &past, &error), NG_OK);
    cr_assert_eq(ng_journal_reopen("j", &past, &first, &error), NG_OK);
    cr_expect_eq(ng_journal_reopen("j", &past, &second, &error), NG_IO);
    cr_expect(strstr(error.text, "another run is writing this journal"), "%s", error.text);
    ng_journal_close(&first);
    ng_journal_past_free(&past);
    free(s);
    leave_folder(folder);
}

/* A record of a resumed run carries the options of the run, and what chooses cases is not taken twice. */
static void resumed_records_say_their_command(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    say("run -q --json /dev/full --journal j --no-speed --tag who=me -f *cpu/a/* -f *cpu/b/*", s);
    cr_assert_eq(s->status, 2, "%s", s->err);
    say("run -q --resume j --json r.json", s);
    cr_expect_eq(s->status, 0, "%s", s->err);
    char *record = slurp("r.json");
    cr_expect(strstr(record, "\"--no-speed\", \"--tag\", \"who=me\", \"-f\", \"*cpu/a/*\", \"-f\", \"*cpu/b/*\"]"), "%.2000s", record);
    free(record);
    free(s);
    leave_folder(folder);
}

/* ---- expectations -------------------------------------------------------------------------------------------------*/
static void write_expectation(const char *members) {
    char text[2048];
    int length = snprintf(text, sizeof text, "{\"schema\": \"narrowgauge.expectations/1\", \"expectations\": [%s]}", members);
    mkdir("e", 0777);
    write_text("e/known.json", text, (size_t)length);
}

#define WHY "\"reason\": \"broken here\", \"link\": \"https://example.org/1\"}"

/* What an entry makes of each verdict. */
static void expectations_change_verdicts(void) {
    static const struct {
        const char *entry, *line;
        int status;
        const char *fragment; /* of standard output */
    } rows[] = {
        {"{\"cases\": \"*cpu/fail/*\", \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 0, "1 xfail"},
        {"{\"cases\": \"*cpu/fail/*\", \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 0, "known: broken here (https://example.org/1); made so"},
        {"{\"cases\": \"*cpu/moved/*\", \"expect\": \"fail\", " WHY, "-f *cpu/moved/*", 0, "1 xfail"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"status\": [\"moved\"], " WHY, "-f *cpu/fail/*", 1, "1 fail"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", " WHY, "-f *cpu/crash/*", 1, "1 crash"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"status\": [\"crash\"], " WHY, "-f *cpu/crash/*", 0, "1 xfail"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"status\": [\"crash\"], " WHY, "-f *cpu/segv/*", 0, "1 xfail"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", " WHY, "-f *cpu/vacuous/*", 1, "1 vacuous"},
        {"{\"cases\": \"*cpu/pass/*\", \"expect\": \"fail\", " WHY, "-f *cpu/pass/*", 1, "remove the expectation"},
        {"{\"cases\": \"*cpu/pass/*\", \"expect\": \"flake\", " WHY, "-f *cpu/pass/*", 0, "1 pass"},
        {"{\"cases\": \"*cpu/fail/*\", \"expect\": \"flake\", " WHY, "-f *cpu/fail/*", 0, "1 flake"},
        {"{\"cases\": \"*cpu/hangs/*\", \"expect\": \"skip\", " WHY, "-f *cpu/hangs/* -f *cpu/pass/*", 0, "1 pass, 1 skip"},
        {"{\"cases\": \"*cpu/hangs/*\", \"expect\": \"skip\", " WHY, "-f *cpu/hangs/*", 2, ""},
        {"{\"cases\": \"*cpu/other/*\", \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 1, "1 fail"},
        {"{\"cases\": \"*\", \"architecture\": \"sm90\", \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 1, "1 fail"},
        {"{\"cases\": \"*\", \"architecture\": \"[ax]*64\", \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 0, "1 xfail"},
        {"{\"cases\": \"*\", \"driver\": \">=1\", \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 1, "1 fail"},
        {"{\"cases\": \"*\", \"library\": {\"mpfr\": \">=4\"}, \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 0, "1 xfail"},
        {"{\"cases\": \"*\", \"library\": {\"mpfr\": \">=4 <4.0.1\"}, \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 1, "1 fail"},
        {"{\"cases\": \"*\", \"library\": {\"mqfr\": \">=4\"}, \"expect\": \"fail\", " WHY, "-f *cpu/fail/*", 1, "1 fail"},
        {"", "-f *cpu/fail/*", 1, "1 fail"},
    };
    char folder[64], line[256];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_expectation(rows[i].entry);
        snprintf(line, sizeof line, "run --expectations e --timeout 1 %s", rows[i].line);
        say(line, s);
        cr_expect_eq(s->status, rows[i].status, "row %zu: exit %d: %s%s", i, s->status, s->out, s->err);
        cr_expect(strstr(s->out, rows[i].fragment), "row %zu: '%s' lacks '%s'", i, s->out, rows[i].fragment);
    }
    free(s);
    leave_folder(folder);
}

static void expectations_that_are_wrong(void) {
    static const struct {
        const char *entry, *fragment;
    } rows[] = {
        {"{\"expect\": \"fail\", " WHY, "e/known.json: entry 1: \"cases\" is missing"},
        {"{\"cases\": \"*\", " WHY, "\"expect\" is fail, flake or skip"},
        {"{\"cases\": \"*\", \"expect\": \"maybe\", " WHY, "\"expect\" is fail, flake or skip"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"link\": \"https://e.org\"}", "\"reason\" is missing"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"reason\": \"r\"}", "\"link\" is missing"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"reason\": \"r\", \"link\": \"later\"}", "\"link\" is missing"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"drivers\": \">=1\", " WHY, "has a member \"drivers\" that is unknown"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"driver\": \"580\", " WHY, "\"driver\" is no range"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"driver\": \">=580<590\", " WHY, "\"driver\" is no range"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"library\": {\"mpfr\": \"new\"}, " WHY, "\"library\" is no object of ranges"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"status\": [\"pass\"], " WHY, "\"status\" takes fail, moved"},
        {"{\"cases\": \"*\", \"expect\": \"fail\", \"status\": \"fail\", " WHY, "\"status\" is no list"},
        {"{\"cases\": \"*\", \"expect\": \"skip\", \"status\": [\"fail\"], " WHY, "a skip has no \"status\""},
        {"{\"cases\": \"*\", \"expect\": \"fail\", " WHY ", 7", "entry 2: is no object"},
        {"}", "is no file of expectations: no JSON at byte"},
    };
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_expectation(rows[i].entry);
        say("run -q --expectations e -f *cpu/pass/*", s);
        cr_expect_eq(s->status, 2, "row %zu: exit %d", i, s->status);
        cr_expect(strstr(s->err, rows[i].fragment), "row %zu: '%s' lacks '%s'", i, s->err, rows[i].fragment);
        cr_expect_eq(count_lines(s->err), 1, "row %zu: %s", i, s->err);
    }
    free(s);
    leave_folder(folder);
}

static void versions_compare(void) {
    static const struct {
        const char *range, *version;
        bool sound, holds;
    } rows[] = {
        {">=575 <580", "575.57.08", true, true}, {">=575 <580", "580.159.04", true, false}, {"<580", "580", true, false},
        {"<=580", "580.0", true, true},          {"=13.1", "13.1.0", true, true},           {"=13.1", "13.10", true, false},
        {">13.9", "13.10", true, true},          {">=1", "", true, false},                  {"> 2 <= 3", "3", true, true},
        {"580", "580", false, false},            {">=x", "1", false, false},                {"", "1", false, true},
        {">=1,<2", "1", false, false},           {"<.5", "0.4", false, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect_eq(ng_range_is_sound(rows[i].range), rows[i].sound, "'%s'", rows[i].range);
        if (rows[i].sound) cr_expect_eq(ng_range_holds(rows[i].range, rows[i].version), rows[i].holds, "'%s' '%s'", rows[i].range, rows[i].version);
    }
}

/* Only what fails again in a fresh process fails the run. */
static void failures_run_again(void) {
    char folder[64];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    say("run -f *cpu/once/* -f *cpu/pass/*", s);
    cr_expect_eq(s->status, 0, "%s%s", s->out, s->err);
    cr_expect(strstr(s->out, "fail at first (a cosmic ray); it passes when run again in a fresh process"), "%s", s->out);
    cr_expect(strstr(s->out, "1 pass, 1 flake"), "%s", s->out);
    unlink("failed-once");
    say("run --no-retry -f *cpu/once/*", s);
    cr_expect_eq(s->status, 1, "%s", s->out);
    unlink("failed-once");
    say("run -f *cpu/worse/* -f *cpu/pass/*", s);
    cr_expect_eq(s->status, 1, "%s", s->out);
    cr_expect(strstr(s->out, "bad; run again in a fresh process: crash") && strstr(s->out, "1 pass, 1 fail"), "%s", s->out);
    unlink("failed-once");
    write_expectation("{\"cases\": \"*cpu/once/*\", \"expect\": \"fail\", " WHY); /* what is expected is not run again */
    say("run --expectations e -f *cpu/once/*", s);
    cr_expect_eq(s->status, 0, "%s", s->out);
    cr_expect(strstr(s->out, "1 xfail"), "%s", s->out);
    free(s);
    leave_folder(folder);
}

/* ---- plug-ins -----------------------------------------------------------------------------------------------------*/
static void plugin_path(const char *name, char *path, size_t capacity) {
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    cr_assert(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(path, capacity, "%s/libng%s.so", self, name);
}

static void plugins_that_are_wrong(void) {
    static const struct {
        const char *name, *fragment;
    } rows[] = {
        {"plugin_good", NULL},
        {"plugin_abi", "built for plug-in ABI 4711; this program has 1: rebuild it"},
        {"plugin_bytes", "its ng_kernel has 8 bytes"},
        {"plugin_null", "ng_plugin_entry() returned NULL"},
        {"plugin_none", "is no plug-in: it does not export ng_plugin_entry"},
        {"plugin_name", "has the name 'Bad Name'; expected operation/format/backend/variant"},
        {"plugin_twice", "two kernels have the name cast/e4m3/cpu/a"},
        {"plugin_segv", "a process that loaded it died of SIGSEGV"},
        {"plugin_exit", "a process that loaded it left with status 0"},
    };
    char folder[64], path[600], line[800];
    said *s = malloc(sizeof *s);
    enter_folder(folder);
    for (size_t i = 0; i < COUNT(rows); i++) {
        plugin_path(rows[i].name, path, sizeof path);
        snprintf(line, sizeof line, "list --plugin %s -f */plugged/*", path);
        say(line, s);
        cr_expect_eq(s->status, rows[i].fragment ? 2 : 0, "%s: exit %d: %s", rows[i].name, s->status, s->err);
        cr_expect(strstr(rows[i].fragment ? s->err : s->out, rows[i].fragment ? rows[i].fragment : "cast/e4m3/cpu/plugged/"),
                  "%s: %s%s", rows[i].name, s->err, s->out);
        if (rows[i].fragment) cr_expect_eq(count_lines(s->err), 1, "%s: %s", rows[i].name, s->err);
    }
    free(s);
    leave_folder(folder);
}

const ng_test ng_tests[] = {
    {"harness", "a case that dies is a crash and the run goes on", deaths_are_contained, 0},
    {"harness", "a case that exceeds its limit is a timeout", limits_hold, 0},
    {"harness", "a case is not blamed for its neighbour", neighbours_are_not_blamed, 0},
    {"harness", "a judge that cannot be made ends the run with its reason", a_judge_that_cannot_be_made, 0},
    {"harness", "bad arguments are one line and exit 2", bad_arguments, 0},
    {"harness", "help, version and lists", help_and_lists, 0},
    {"harness", "exit status of each verdict", exit_status_of_each_verdict, 0},
    {"harness", "unwritable outputs are noticed and lose nothing", unwritable_outputs, 0},
    {"harness", "a full standard output is noticed", full_standard_output, 0},
    {"harness", "the record fits its schema", record_fits_its_schema, 0},
    {"harness", "results survive JSON bit for bit", results_survive_json, 0},
    {"harness", "strings become UTF-8", strings_become_utf8, 0},
    {"harness", "words for shells and globs are quoted", words_are_quoted, 0},
    {"harness", "JUnit is escaped and counts", junit_is_escaped, 0},
    {"harness", "TAP is numbered and escaped", tap_is_numbered, 0},
    {"harness", "standard output is one record", standard_output_is_one_record, 0},
    {"harness", "a repro line runs one case", repro_runs_one_case, 0},
    {"harness", "a journal torn at any byte of its last line", torn_journals, 0},
    {"harness", "foreign, lying and newer journals are refused", foreign_journals, 0},
    {"harness", "a resumed run equals one left alone", resumed_equals_uninterrupted, 0},
    {"harness", "a killed run resumes", a_killed_run_resumes, 0},
    {"harness", "two runs share no journal", two_runs_share_no_journal, 0},
    {"harness", "plug-ins that are wrong are one line", plugins_that_are_wrong, 0},
    {"harness", "a resumed record says the command that it is of", resumed_records_say_their_command, 0},
    {"expectations", "what they make of each verdict", expectations_change_verdicts, 0},
    {"expectations", "wrong files are one line and exit 2", expectations_that_are_wrong, 0},
    {"expectations", "ranges of versions", versions_compare, 0},
    {"expectations", "only what fails again fails", failures_run_again, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
