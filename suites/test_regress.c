/* Regression: what recorded bits, expectations and comparisons of runs find, and what they leave alone. Each test runs the
 * program as a user would, in a folder of its own; records and goldens are edited with sed, for each case stands on one line. */
#include "suites/test.h"

#include <cJSON.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* NG_PROGRAM, NG_GOLDENS: from meson.build. */
#define COUNT(table) (sizeof(table) / sizeof *(table))

enum { OUTPUT = 1 << 17 };
static char said[OUTPUT]; /* by the last command, on either stream */

/* Runs a shell command; returns its exit status. The program is $NG, the shipped goldens are in $GOLDENS. */
static int sh(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int sh(const char *format, ...) {
    char command[8192];
    va_list arguments;
    int length = snprintf(command, sizeof command, "exec 2>&1; NG='%s'; GOLDENS='%s'; ", NG_PROGRAM, NG_GOLDENS);
    va_start(arguments, format);
    length += vsnprintf(command + length, sizeof command - (size_t)length, format, arguments);
    va_end(arguments);
    cr_assert((size_t)length < sizeof command);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t used = 0, got;
    while ((got = fread(said + used, 1, OUTPUT - 1 - used, pipe)) > 0)
        used += got;
    said[used] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define SAYS(fragment) cr_expect(strstr(said, fragment), "lacks '%s': %s", fragment, said)
#define GIVES(status, ...) do { int got_ = sh(__VA_ARGS__); cr_expect_eq(got_, status, "exit %d, expected %d: %s", got_, status, said); } while (0)

static void enter_folder(char folder[64]) {
    snprintf(folder, 64, "/tmp/ng-regress-XXXXXX");
    cr_assert(mkdtemp(folder) && !chdir(folder), "%s: %s", folder, strerror(errno));
}

static void leave_folder(const char *folder) {
    cr_expect(!chdir("/"));
    sh("rm -rf '%s'", folder);
}

static size_t lines_said(void) {
    size_t lines = 0;
    for (const char *c = said; *c; c++)
        lines += *c == '\n';
    return lines;
}

/* One clear line and exit 2. */
static void expect_no_verdict(const char *fragment) {
    SAYS(fragment);
    cr_expect_eq(lines_said(), 1, "not one line: %s", said);
}

/* A copy of a file with something changed in it; that nothing changed is the test's own mistake. */
static void edit(const char *from, const char *to, const char *script) {
    cr_assert_eq(sh("sed -e '%s' '%s' > '%s' && ! cmp -s '%s' '%s'", script, from, to, from, to), 0, "%s changes nothing: %s", script, said);
}

/* ---- goldens ------------------------------------------------------------------------------------------------------*/
#define ONE_CASE "cast/fp32->e4m3/cpu/rne-sat/tails/33x65/normal"
#define CASE_PATTERN "cast.fp32->e4m3.cpu.rne-sat.tails.33x65.normal"

static void flipped_bit_in_a_golden(void) {
    char folder[64];
    enter_folder(folder);
    GIVES(0, "$NG run --no-speed -f '%s'", ONE_CASE);
    SAYS("goldens: 1 match\n");
    cr_assert_eq(sh("mkdir g"), 0);
    edit(NG_GOLDENS "/cpu-seed1.json", "g/cpu-seed1.json", "/\"" CASE_PATTERN "\"/{s/\\[\"0/[\"1/;t;s/\\[\"./[\"0/}");
    GIVES(1, "$NG run --no-speed --goldens g -f '%s' --json r.json", ONE_CASE);
    SAYS("moved");
    SAYS("bits differ from those of cpu-seed1.json");
    SAYS("goldens: 1 differ\n");
    SAYS("run again in a fresh process: moved");
    GIVES(0, "grep -q '\"status\": \"moved\".*\"golden\": \"differ\"' r.json");
    GIVES(1, "$NG golden check r.json --goldens g");
    SAYS("differs  " ONE_CASE);
    GIVES(0, "$NG run -q --no-speed --goldens none -f '%s'", ONE_CASE);
    /* No golden of this seed: nothing to differ from, and nothing to check. */
    GIVES(0, "$NG run --no-speed --goldens g --seed 7 -f '%s'", ONE_CASE);
    cr_expect(!strstr(said, "goldens:"), "%s", said);
    GIVES(2, "$NG golden check -q --goldens g --seed 7 -f '%s'", ONE_CASE);
    SAYS("no golden applies");
    leave_folder(folder);
}

/* An absent golden is counted by run; check fails for cases of the tables, and for goldens of no case. */
static void absent_goldens_are_counted(void) {
    char folder[64];
    enter_folder(folder);
    cr_assert_eq(sh("mkdir g"), 0);
    edit(NG_GOLDENS "/cpu-seed1.json", "g/cpu-seed1.json", "/\"" CASE_PATTERN "\"/d");
    GIVES(0, "$NG run --no-speed --goldens g -f '%s' -f 'cast/fp32->e5m2/cpu/rne-sat/tails*' --json r.json", ONE_CASE);
    SAYS("goldens: 2 match, 1 absent\n");
    GIVES(1, "$NG golden check r.json --goldens g");
    SAYS("lacks    " ONE_CASE);
    GIVES(1, "$NG golden check --list --goldens g");
    SAYS("lacks    " ONE_CASE);
    GIVES(0, "$NG run --no-speed --shape 32x32x32 -f 'gemm/bf16/cpu/fp32-chain/bf16-out/*' --json s.json");
    SAYS("1 absent");
    GIVES(2, "$NG golden check s.json");
    SAYS("1 others have none");
    leave_folder(folder);
}

/* A whole level: recorded from its record, checked against it, and part of what is shipped. */
static void smoke_is_what_was_shipped(void) {
    char folder[64];
    enter_folder(folder);
    GIVES(0, "$NG run -q --no-speed --backend cpu --json r.json");
    GIVES(0, "$NG golden record r.json --into g && mv g first && $NG golden record r.json --into g && cmp g/cpu-seed1.json first/cpu-seed1.json");
    GIVES(0, "$NG golden check r.json --goldens g");
    SAYS("0 differ, 0 of these tables lack one, 0 others have none, 0 of no case any more");
    GIVES(0, "$NG golden diff g/cpu-seed1.json $GOLDENS/cpu-seed1.json");
    SAYS(" 0 differ; 0 only in g/cpu-seed1.json");
    edit("g/cpu-seed1.json", "more.json", "/\"" CASE_PATTERN "\"/{p;s/normal\"/abnormal\"/}");
    GIVES(1, "mv more.json g/cpu-seed1.json; $NG golden check r.json --goldens g");
    SAYS("1 of no case any more");
    GIVES(2, "$NG run -q --no-speed --backend cpu -f '%s' --json some.json; $NG golden record some.json --into g", ONE_CASE);
    expect_no_verdict("record without --filter");
    leave_folder(folder);
}

/* New cases get their goldens when goldens are next recorded; until then this says which lack one. */
static void every_case_has_a_golden(void) {
    int status = sh("$NG golden check --list --level ci --backend cpu");
    cr_assert_neq(status, 2, "%s", said);
    const char *total = strstr(said, " cases have a golden");
    cr_assert(total, "%s", said);
    if (status == 1) cr_skip_test("cases without a golden; `golden record --level ci --backend cpu` makes them: %.400s", said);
}

/* Every CUDA kernel gives the bits of the CPU kernel of its name. */
static void gpu_and_cpu_have_the_same_goldens(void) {
    int status = sh("cut -d, -f1 $GOLDENS/cuda-sm90-seed1.json | grep '/cuda/' | sed 's,/cuda/,/cpu/,' | sort > /tmp/ng-gpu.$$; "
                    "cut -d, -f1 $GOLDENS/cpu-seed1.json | grep '/cpu/' | sort > /tmp/ng-cpu.$$; "
                    "comm -12 /tmp/ng-gpu.$$ /tmp/ng-cpu.$$ | wc -l; sort /tmp/ng-gpu.$$ /tmp/ng-cpu.$$ | uniq | cut -d: -f1 | uniq -d | head; "
                    "rm -f /tmp/ng-gpu.$$ /tmp/ng-cpu.$$");
    cr_expect_eq(status, 0);
    cr_expect(atoi(said) > 3000, "only %d cases in both", atoi(said));
    cr_expect_eq(lines_said(), 1, "other bits: %s", said);
}

static void goldens_that_are_wrong(void) {
    static const struct {
        const char *script, *fragment;
    } rows[] = {
        {"s,narrowgauge.golden/1,narrowgauge.golden/2,", "is a narrowgauge.golden/2; this program knows narrowgauge.golden/1"},
        {"s,narrowgauge.golden/1,other/1,", "is no golden (its schema is other/1)"},
        {"s/\"schema\"/\"scheme\"/", "is no golden (it names no schema)"},
        {"$d", "is no golden: cut off after"},
        {"5s/}/]/", "is no golden: no JSON at byte"},
        {"s/\"architecture\": \"any\"/\"architecture\": \"sm90\"/", "holds the golden of cpu-sm90-seed1.json; a file"},
        {"s/\"seed\": \"1\"/\"seed\": 1/", "its key lacks backend, architecture, library or seed"},
        {"s/\"level\": \"ci\"/\"level\": \"cii\"/", "its key"},
        {"/\"" CASE_PATTERN "\"/s/\\[\"./[\"x/", "is no digest with 4 figures"},
        {"/\"" CASE_PATTERN "\"/p", "twice"},
    };
    char folder[64];
    enter_folder(folder);
    cr_assert_eq(sh("mkdir g"), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        edit(NG_GOLDENS "/cpu-seed1.json", "g/cpu-seed1.json", rows[i].script);
        GIVES(2, "$NG run -q --no-speed --goldens g -f '%s'", ONE_CASE);
        expect_no_verdict(rows[i].fragment);
    }
    GIVES(2, "$NG run -q --goldens nowhere -f '%s'", ONE_CASE);
    expect_no_verdict("nowhere: cannot be read");
    leave_folder(folder);
}

/* What moved, by how much and where: from two runs that kept their results. */
static void diff_says_where(void) {
    char folder[64];
    enter_folder(folder);
    GIVES(0, "$NG run -q --no-speed -f '%s' --save always --save-dir a --json a.json && cp -r a b", ONE_CASE);
    edit("a.json", "b.json", "/\"" CASE_PATTERN "\"/{s/\"digest\": \"./\"digest\": \"x/;s/\"bound_ratio\": [0-9.]*/\"bound_ratio\": 0.99/}");
    /* code 1 of row 1, column 1 of 33x65 one up, code of row 0, column 0 three up */
    GIVES(0, "f=$(echo b/*.OUT.npy); python3 - $f <<'PY'\nimport sys\np=sys.argv[1]\nd=bytearray(open(p,'rb').read())\nd[128]+=3\nd[128+66]-=1\nopen(p,'wb').write(d)\nPY");
    GIVES(1, "$NG golden diff a.json b.json --saved a --saved b");
    SAYS("inside its bound");
    SAYS("bound_ratio");
    SAYS("OUT: 2 of 2145 elements, by up to 3 units in the last place, first [0][0]");
    SAYS("0 cases have the same bits, 1 differ");
    GIVES(0, "$NG golden diff a.json a.json --saved a --saved a");
    GIVES(2, "truncate -s 200 b/*.OUT.npy; $NG golden diff a.json b.json --saved a --saved b");
    SAYS("is cut off");
    GIVES(2, "$NG golden diff a.json");
    expect_no_verdict("diff takes two files");
    GIVES(2, "$NG golden dif a.json a.json");
    expect_no_verdict("expected record, check or diff");
    leave_folder(folder);
}

const ng_test ng_tests[] = {
    {"goldens", "one flipped bit is found", flipped_bit_in_a_golden, 0},
    {"goldens", "absent ones are counted, and fail where they should be", absent_goldens_are_counted, 0},
    {"goldens", "recorded, checked, and what was shipped", smoke_is_what_was_shipped, 120},
    {"goldens", "every case of the tables has one", every_case_has_a_golden, 0},
    {"goldens", "H200 and CPU have the same bits", gpu_and_cpu_have_the_same_goldens, 0},
    {"goldens", "wrong files are one line and exit 2", goldens_that_are_wrong, 0},
    {"goldens", "diff says where and by how much", diff_says_where, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
