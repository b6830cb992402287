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

/* NG_PROGRAM, NG_GOLDENS, NG_FAULTS: from meson.build. */
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
    SAYS("0 differ, 0 of these tables lack one, 0 others have none, 0 did not run, 0 of no case any more");
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

/* ---- compare ------------------------------------------------------------------------------------------------------*/
#define SELECTION "-f 'cast/fp32->e4m3/cpu/r*-sat/tails*' -f 'gemm/e4m3/cpu/*/tails*'"
#define PRODUCT "gemm.e4m3.cpu.hopper-mma-sync.bf16-out.tails.33x65x97.normal.prequantized"

/* copies.py A B NOISE FACTOR PATTERN: A records of other runs made of a.json, A1.json and on, B of b.json. Every case takes
 * 100 us times 1 +- NOISE; on side B those that match take FACTOR times that. */
static const char copier[] =
    "import json, random, re, sys\n"
    "a, b, noise, factor, pattern = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]\n"
    "draw = random.Random(1)\n"
    "for side, count in (('A', a), ('B', b)):\n"
    "    for i in range(1, count + 1):\n"
    "        r = json.load(open(side.lower() + '.json'))\n"
    "        r['run']['id'] = '%032x' % draw.getrandbits(128)\n"
    "        for c in r['cases']:\n"
    "            f = 1 + noise * draw.uniform(-1, 1)\n"
    "            if side == 'B' and re.search(pattern, c['id']): f *= factor\n"
    "            c['speed'] = dict(median_s=1e-4 * f, q1_s=0.999e-4 * f, q3_s=1.001e-4 * f, samples=30, roofline=0.5 / f)\n"
    "        json.dump(r, open(f'{side}{i}.json', 'w'))\n";

static void write_copier(void) {
    FILE *file = fopen("copies.py", "w");
    cr_assert(file && fputs(copier, file) >= 0 && !fclose(file));
}

/* Two real runs of one program, a.json and b.json. */
static void two_runs(char folder[64]) {
    enter_folder(folder);
    GIVES(0, "$NG run -q --backend cpu --no-speed " SELECTION " --json a.json && $NG run -q --backend cpu --no-speed " SELECTION " --json b.json");
}

static void changes_have_their_words(void) {
    static const struct {
        const char *script, *options;
        int status;
        const char *fragment;
    } rows[] = {
        {"s/\"driver\": null/\"driver\": \"580.159.04\"/", "", 0, "driver: unknown -> 580.159.04"},
        {"s/\"driver\": null/\"driver\": \"580.159.04\"/", "", 0, "no regression; 26 cases in common, 26 with the same bits"},
        {"/\"" PRODUCT "\"/s/\"digest\": \"./\"digest\": \"x/", "", 1, "Bits moved inside their bounds: 1\n"},
        {"/\"" PRODUCT "\"/s/\"digest\": \"./\"digest\": \"x/", "", 1, "regression: 1 moved; 26 cases in common, 25 with the same bits"},
        {"/\"" PRODUCT "\"/s/\"digest\": \"./\"digest\": \"x/", "--allow-moved", 0, "Bits moved inside their bounds: 1\n"},
        {"/\"" PRODUCT "\"/{s/\"digest\": \"./\"digest\": \"x/;s/\"differ\": 0, \"first\": .0, 0./\"differ\": 3, \"first\": [4, 5]/}", "", 1,
         "3 of 2145 elements are not as"},
        {"/\"" PRODUCT "\"/{s/\"status\": \"pass\"/\"status\": \"fail\"/;s/\"bound_ratio\": [0-9.]*/\"bound_ratio\": 1.5/}", "", 1, "Bounds broken: 1\n"},
        {"/\"" PRODUCT "\"/s/\"status\": \"pass\"/\"status\": \"crash\"/", "", 1, "Crashed or timed out: 1\n"},
        {"/\"" PRODUCT "\"/s/\"status\": \"pass\"/\"status\": \"vacuous\"/", "", 1, "Checks that can no longer fail: 1\n"},
        {"/\"" PRODUCT "\"/s/\"nondeterministic\": false/\"nondeterministic\": true/", "", 1, "Not the same bits from run to run: 1\n"},
        {"/\"" PRODUCT "\"/d", "", 1, "Cases lost: 1\n"},
        {"/\"" PRODUCT "\"/s/\"status\": \"pass\", \"reason\": \"\"/\"status\": \"skip\", \"reason\": \"no such thing\"/", "", 1, "skipped: no such thing"},
        {"/\"" PRODUCT "\"/s/\"bound_ratio\": [0-9.]*/\"bound_ratio\": 0.99/", "", 0, "Error grown inside its bound: 1\n"},
        {"/\"" PRODUCT "\"/{p;s/normal/abnormal/}", "", 0, "New cases: 1\n"},
        {"/\"" PRODUCT "\"/{p;s/normal/abnormal/;s/\"status\": \"pass\"/\"status\": \"fail\"/}", "", 1, "Bounds broken: 1\n"},
    };
    char folder[64];
    two_runs(folder);
    GIVES(0, "$NG compare a.json b.json");
    SAYS("no regression; 26 cases in common, 26 with the same bits");
    SAYS("Both ran on the same");
    for (size_t i = 0; i < COUNT(rows); i++) {
        edit("b.json", "c.json", rows[i].script);
        int status = sh("$NG compare a.json c.json %s", rows[i].options);
        cr_expect_eq(status, rows[i].status, "row %zu: exit %d: %s", i, status, said);
        cr_expect(strstr(said, rows[i].fragment), "row %zu lacks '%s': %s", i, rows[i].fragment, said);
    }
    /* and back: what was wrong in A alone is fixed */
    edit("a.json", "c.json", "/\"" PRODUCT "\"/s/\"status\": \"pass\"/\"status\": \"fail\"/");
    GIVES(0, "$NG compare c.json b.json");
    SAYS("Fixed: 1\n");
    edit("b.json", "d.json", "/\"" PRODUCT "\"/s/\"status\": \"pass\"/\"status\": \"fail\"/");
    GIVES(0, "$NG compare c.json d.json");
    SAYS("Fail on both sides: 1\n");
    leave_folder(folder);
}

static void what_cannot_be_compared(void) {
    static const struct {
        const char *script, *fragment;
    } rows[] = {
        {"s/\"level\": \"smoke\"/\"level\": \"ci\"/", "cannot be compared: levels smoke and ci"},
        {"s/--seed 1\"/--seed 2\"/", "cannot be compared: seeds 1 and 2: other data"},
        {"s/\"kernels\": \"./\"kernels\": \"x/", "other builds of the kernels,"},
        {"s/ x86_64\"/ riscv64\"/;s/ aarch64\"/ riscv64\"/", "machines"},
        {"s/\"gpu\": null/\"gpu\": {\"sm\": 90}/;0,/\"backend\": \"cpu\"/s//\"backend\": \"cuda\"/", "GPU architectures none and sm90"},
        {"s,narrowgauge.report/1,narrowgauge.report/2,", "is a narrowgauge.report/2; this program knows narrowgauge.report/1"},
        {"s,narrowgauge.report/1,junit/5,", "is no record of a run (its schema is junit/5)"},
        {"$d", "cut off after"},
        {"s/\"status\": \"pass\"/\"status\": \"fine\"/", "names no status"},
        {"s/\"fingerprint\"/\"fingerprints\"/", "it lacks"},
        {"/\"" PRODUCT "\"/p", "twice"},
        {"/\"" PRODUCT "\"/s/\"status\"/status/", "no JSON at byte"},
        {"/\"id\": \"[cg]/d", "have no case in common that ran"},
    };
    char folder[64];
    two_runs(folder);
    for (size_t i = 0; i < COUNT(rows); i++) {
        edit("b.json", "c.json", rows[i].script);
        int status = sh("$NG compare a.json c.json");
        cr_expect_eq(status, 2, "row %zu: exit %d: %s", i, status, said);
        expect_no_verdict(rows[i].fragment);
    }
    edit("b.json", "c.json", "s/\"kernels\": \"./\"kernels\": \"x/");
    GIVES(0, "$NG compare --across-builds a.json c.json");
    SAYS("digests kernels: ");
    GIVES(2, "$NG compare a.json a.json");
    expect_no_verdict("are the same run");
    GIVES(2, "$NG compare a.json");
    expect_no_verdict("two records are compared");
    GIVES(2, "$NG compare --baseline a.json");
    expect_no_verdict("which records are side B?");
    GIVES(2, "$NG compare a.json nowhere.json");
    expect_no_verdict("nowhere.json: cannot be read");
    edit("b.json", "c.json", "s/\"driver\": null/\"driver\": \"580\"/");
    GIVES(2, "sed -e 's/\"id\": \"[0-9a-f]*\", \"started/\"id\": \"0\", \"started/' b.json > d.json; $NG compare --baseline a.json c.json b.json");
    expect_no_verdict("no repeats of one side");
    leave_folder(folder);
}

/* A slowdown counts with three runs of either side, and only where runs of one side do not differ as much. */
static void slowdowns(void) {
    static const struct {
        const char *noise, *factor, *pattern;
        int a, b, status;
        const char *fragment;
    } rows[] = {
        {"0.01", "1.1", "hopper-mma-sync/bf16-out/tails", 3, 3, 1, "Slower, confirmed: 1\n  gemm/e4m3/cpu/hopper-mma-sync/bf16-out/tails/33x65x97/normal/prequantized"},
        {"0.01", "1.1", "hopper-mma-sync/bf16-out/tails", 4, 3, 1, "regression: 1 slower"},
        {"0.01", "1.1", "hopper-mma-sync/bf16-out/tails", 2, 3, 0, "at least 3 records of either side"},
        {"0.01", "1.1", "hopper-mma-sync/bf16-out/tails", 1, 1, 0, "Speed ambiguous: 1\n"},
        {"0.01", "1.03", "hopper-mma-sync/bf16-out/tails", 3, 3, 0, "no regression"},
        {"0.01", "0.9", "hopper-mma-sync/bf16-out/tails", 3, 3, 0, "Faster, confirmed: 1\n"},
        {"0.01", "1.1", ".", 3, 3, 1, "the median cpu case takes at least 1."},
        {"0.01", "1.1", ".", 1, 1, 0, "not confirmed: three records of either side are needed"},
        {"0.1", "1.1", "hopper-mma-sync/bf16-out/tails", 3, 3, 0, "no regression"},
        {"0.1", "1", "nothing", 3, 3, 0, "no regression"},
        {"0.3", "1", "nothing", 3, 3, 0, "no regression"},
        {"0.01", "1", "nothing", 3, 3, 0, "speed: 26 same"},
    };
    char folder[64];
    two_runs(folder);
    write_copier();
    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_assert_eq(sh("rm -f [AB]?.json; python3 copies.py %d %d %s %s '%s'", rows[i].a, rows[i].b, rows[i].noise, rows[i].factor,
                        rows[i].pattern), 0, "%s", said);
        int status = sh("$NG compare $(printf -- '--baseline %%s ' A?.json) B?.json");
        cr_expect_eq(status, rows[i].status, "row %zu: exit %d: %s", i, status, said);
        cr_expect(strstr(said, rows[i].fragment), "row %zu lacks '%s': %s", i, rows[i].fragment, said);
    }
    GIVES(1, "rm -f [AB]?.json; python3 copies.py 3 3 0.01 1.1 hopper-mma-sync/bf16-out/tails; $NG compare -q --json c.json --markdown c.md $(printf -- '--baseline %%s ' A?.json) B?.json");
    GIVES(0, "python3 -c \"import json; c = json.load(open('c.json')); assert c['regression'] and c['findings'][0]['change'] == 'slower' and c['speed']['slower'] == 1\"");
    GIVES(0, "grep -q '<details open><summary>Slower, confirmed: 1' c.md && grep -q '^regression: 1 slower' c.md");
    leave_folder(folder);
}

/* Fifty pairs of real runs of one program: none is a regression. */
static void noise_alone(void) {
    enum { RUNS = 8, PAIRS = 50 };
    char folder[64];
    int pairs = 0;
    enter_folder(folder);
    GIVES(0, "for i in $(seq %d); do $NG run -q --backend cpu " SELECTION " --json r$i.json || exit 1; done", RUNS);
    for (int a = 1; a <= RUNS; a++)
        for (int b = 1; b <= RUNS && pairs < PAIRS; b++) {
            if (a == b) continue;
            GIVES(0, "$NG compare r%d.json r%d.json", a, b);
            SAYS("no regression; 26 cases in common, 26 with the same bits");
            pairs++;
        }
    cr_expect_eq(pairs, PAIRS);
    leave_folder(folder);
}

/* Training: a recipe that fails, one that is gone, losses with other bits. */
static void training_changes(void) {
    char folder[64];
    enter_folder(folder);
    GIVES(0, "$NG train --baseline fp32 -r bf16 -r mxfp8 --layers 1 --width 32 --heads 2 --sequence 16 --batch 2 --vocabulary 32 --steps 6 --seeds 2 --json a.json");
    edit("a.json", "b.json", "s/^  \"id\": \"[0-9a-f]\\{8\\}/  \"id\": \"01234567/");
    GIVES(0, "$NG compare a.json b.json");
    SAYS("no regression; 3 cases in common, 3 with the same bits");
    edit("b.json", "fails.json", "/\"recipe\": \"bf16\"/s/\"status\": \"[a-z]*\"/\"status\": \"fail\"/");
    GIVES(1, "$NG compare a.json fails.json");
    SAYS("-> fail: gap");
    SAYS("regression: 1 convergence; 3 cases in common");
    edit("b.json", "bits.json", "/\"recipe\": \"mxfp8\"/s/\"losses\": \\[[0-9]/\"losses\": [9/");
    GIVES(1, "$NG compare a.json bits.json");
    SAYS("the loss of seed 1 has other bits from step 1 on");
    edit("b.json", "short.json", "/\"recipe\": \"mxfp8\"/s/, [0-9.]*\\], \"norms\"/], \"norms\"/");
    GIVES(1, "$NG compare a.json short.json");
    SAYS("has other bits from step 6 on");
    edit("bits.json", "again.json", "s/^  \"id\": \"0123/  \"id\": \"9999/");
    GIVES(1, "$NG compare --baseline a.json b.json again.json");
    SAYS("1 determinism");
    edit("b.json", "unclear.json", "/\"recipe\": \"bf16\"/s/\"status\": \"[a-z]*\"/\"status\": \"unclear\"/");
    GIVES(0, "$NG compare a.json unclear.json");
    SAYS("-> unclear: gap of the loss");
    edit("b.json", "lost.json", "/\"recipe\": \"bf16\"/d");
    GIVES(1, "$NG compare a.json lost.json");
    SAYS("regression: 1 lost");
    leave_folder(folder);
}

/* ---- validate -----------------------------------------------------------------------------------------------------*/
#define TIMED "$NG validate --backend cpu " SELECTION " "
#define VALIDATE TIMED "--no-speed "

/* The last line, and the exit status that goes with it. */
static void expect_verdict(int status, int expected, const char *line) {
    const char *last = said + strlen(said);
    cr_expect_eq(status, expected, "exit %d, expected %d: %s", status, expected, said);
    for (int n = 0; last > said && n < 2;)
        n += *--last == '\n';
    cr_expect(strstr(last, line), "the last line is no '%s': %s", line, said);
}

static void verdicts(void) {
    char folder[64];
    enter_folder(folder);
    cr_assert_eq(sh("mkdir g"), 0);
    expect_verdict(sh(VALIDATE), 0, "ACCEPT\n");
    SAYS("goldens: 26 match, 0 differ");
    edit(NG_GOLDENS "/cpu-seed1.json", "g/cpu-seed1.json", "/\"" PRODUCT "\"/{s/\\[\"0/[\"1/;t;s/\\[\"./[\"0/}");
    expect_verdict(sh(VALIDATE "--goldens g --json v.json"), 1, "REVIEW: moved 1\n");
    SAYS("bits differ from those of cpu-seed1.json");
    GIVES(0, "python3 -c \"import json; v = json.load(open('v.json')); assert v['verdict'] == 'REVIEW' and v['findings'][0]['change'] == 'moved'\"");
    expect_verdict(sh(VALIDATE "--goldens g --allow-moved"), 0, "ACCEPT\n");
    expect_verdict(sh(VALIDATE "--plugin %s -f 'cast/fp32->e4m3/truncates/rne-sat/tails*/normal'", NG_FAULTS), 1, "REJECT: bound 1\n");
    expect_verdict(sh(VALIDATE "--expect-driver 580.159.04"), 2, "NO VERDICT: --expect-driver 580.159.04: the driver in use");
    expect_verdict(sh(VALIDATE "--expect-cublaslt '>=99'"), 2, "NO VERDICT: --expect-cublaslt >=99: the cuBLASLt in use");
    expect_verdict(sh(VALIDATE "--lock-clocks 1980 --device 99"), 2, "NO VERDICT: --lock-clocks: no GPU");
    expect_verdict(sh(VALIDATE "--baseline nobody"), 2, "no baseline 'nobody'");
    expect_verdict(sh("$NG validate -f 'nothing/*'"), 2, "NO VERDICT: the run gave none");
    cr_expect_eq(sh("ls -d ${TMPDIR:-/tmp}/narrowgauge-?????? 2>/dev/null | wc -l | grep -qx 0"), 0, "a folder was left behind");
    leave_folder(folder);
}

/* Against baselines by name: what is lost, moved or slower. */
static void validates_against_baselines(void) {
    char folder[64];
    enter_folder(folder);
    /* seed 7 has no golden: casts have nothing to compare bits with */
    expect_verdict(sh("$NG validate --backend cpu --no-speed --seed 7 -f 'cast/fp32->e*/cpu/r*-sat/tails*' --save-baseline seven --repeats 1"), 2, "NO VERDICT: nothing to compare bits with");
    expect_verdict(sh("$NG validate --backend cpu --no-speed --seed 7 -f 'cast/fp32->e*/cpu/r*-sat/tails*' --baseline seven"), 0, "ACCEPT\n");
    expect_verdict(sh("$NG validate --backend cpu --no-speed --seed 8 -f 'cast/fp32->e*/cpu/r*-sat/tails*' --baseline seven"), 2, "seeds 7 and 8");
    expect_verdict(sh(TIMED "--save-baseline good --repeats 3"), 0, "ACCEPT\n");
    cr_assert_eq(sh("mv narrowgauge-baselines/good/*.json . && set -- 2*.json && mv $1 1.json && mv $2 2.json && mv $3 3.json && mkdir lost moved quick bad"), 0, "%s", said);
    edit("1.json", "lost/1.json", "/\"" PRODUCT "\"/{p;s/normal/abnormal/}");
    expect_verdict(sh(VALIDATE "--baseline lost"), 1, "REJECT: lost 1\n");
    edit("1.json", "moved/1.json", "/\"" PRODUCT "\"/s/\"digest\": \"./\"digest\": \"x/");
    expect_verdict(sh(VALIDATE "--baseline moved"), 1, "REVIEW: moved 1\n");
    edit("1.json", "bad/1.json", "$d");
    expect_verdict(sh(VALIDATE "--baseline bad"), 2, "bad/1.json: is no record of a run: cut off");
    edit("1.json", "bad/1.json", "s/ x86_64\"/ riscv64\"/;s/ aarch64\"/ riscv64\"/");
    expect_verdict(sh(VALIDATE "--baseline bad"), 2, "machines riscv64 and");
    /* one case that took a tenth of the time; the others' times are what they were */
    GIVES(0, "for i in 1 2 3; do sed -e '/\"" PRODUCT "\"/s/\\(\"\\(median\\|q[13]\\)_s\": [0-9.]*\\)\\(e-0\\?[0-9]*\\)\\?/\\1e-09/g' $i.json > quick/$i.json; done; "
             "! cmp -s 1.json quick/1.json");
    expect_verdict(sh(TIMED "--baseline quick"), 1, "REJECT: slower ");
    SAYS("Slower, confirmed: ");
    SAYS("  gemm/e4m3/cpu/hopper-mma-sync/bf16-out/tails/33x65x97/normal/prequantized\n      "); /* sorted: the worst comes first */
    SAYS("validate: run 6 of level smoke");
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
    {"compare", "each change has its word and its exit status", changes_have_their_words, 0},
    {"compare", "what cannot be compared is one line and exit 2", what_cannot_be_compared, 0},
    {"compare", "a slowdown counts if it is confirmed", slowdowns, 120},
    {"compare", "fifty pairs of runs of one program", noise_alone, 120},
    {"validate", "accept, review, reject, no verdict", verdicts, 120},
    {"validate", "against baselines by name", validates_against_baselines, 120},
    {"compare", "training that fails, is gone or has other bits", training_changes, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
