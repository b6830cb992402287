/* The program proves its own power: planted faults die, right kernels live, plug-ins cannot lose a run, and a stranger's
 * plug-in, built from an installed header, is judged like any other. Each test runs the program as a user would. */
#include "suites/test.h"

#include <cJSON.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* NG_PROGRAM, NG_BUILD_DIR, NG_EXAMPLE_DIR, NG_MESON: from meson.build. */
#define COUNT(table) (sizeof(table) / sizeof *(table))

enum { OUTPUT = 1 << 16 };

/* Runs a shell command; returns its exit status, and what it printed on either stream. */
static int run(char *output, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int run(char *output, const char *format, ...) {
    char command[4 * PATH_MAX + 1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command - 8, format, arguments);
    va_end(arguments);
    cr_assert(length > 0 && (size_t)length < sizeof command - 8);
    strcat(command, " 2>&1");
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t used = 0, got;
    while ((got = fread(output + used, 1, OUTPUT - 1 - used, pipe)) > 0)
        used += got;
    output[used] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void make_folder(char *folder) {
    strcpy(folder, "/tmp/narrowgauge-faults-XXXXXX");
    cr_assert_not_null(mkdtemp(folder), "%s", strerror(errno));
}

static void remove_folder(const char *folder) {
    char output[OUTPUT];
    run(output, "rm -rf '%s'", folder);
}

static cJSON *read_json(const char *path) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s: %s", path, strerror(errno));
    size_t capacity = 1 << 24;
    char *text = calloc(capacity, 1);
    cr_assert_not_null(text);
    cr_assert(fread(text, 1, capacity - 1, file) > 0);
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    free(text);
    cr_assert_not_null(json, "%s: not JSON", path);
    return json;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    cr_assert(cJSON_IsNumber(item), "no number %s", name);
    return item->valuedouble;
}

/* ---- the matrix ---------------------------------------------------------------------------------------------------*/
enum { LEAST_FAULTS = 200 };
static const char *const judges[] = {"accuracy", "prediction", "determinism", "conduct", "regression", "assert-close", "te-cpp",
                                     "te-python", "hipblaslt", "cutlass", "deepgemm", "sqnr", "cosine"};

/* Each judge kills something, else it is not there; no peer kills what is wrong only in its last bits. */
static void check_matrix(const cJSON *json) {
    size_t kills[COUNT(judges)] = {0};
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(json, "faults")) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(one, "name"), *how = cJSON_GetObjectItemCaseSensitive(one, "kills");
        const cJSON *imitates = cJSON_GetObjectItemCaseSensitive(one, "imitates");
        cr_expect(cJSON_IsString(name) && cJSON_IsString(imitates));
        for (size_t j = 0; j < COUNT(judges); j++) {
            const cJSON *kill = cJSON_GetObjectItemCaseSensitive(how, judges[j]);
            cr_assert(cJSON_IsBool(kill), "%s: %s is missing", name->valuestring, judges[j]);
            kills[j] += (size_t)cJSON_IsTrue(kill);
        }
    }
    for (size_t j = 0; j < COUNT(judges); j++)
        cr_expect(kills[j] > 0, "%s kills nothing", judges[j]);
}

static void test_matrix(void) {
    char folder[64], output[OUTPUT], path[PATH_MAX];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/faults.json", folder);
    int status = run(output, "'%s' faults --quiet --seeds 2 --limit 12 --json '%s'", NG_PROGRAM, path);
    cr_expect_eq(status, 0, "exit status %d: %s", status, output);
    cJSON *json = read_json(path);
    const cJSON *summary = cJSON_GetObjectItemCaseSensitive(json, "summary");
    cr_expect(number(summary, "faults") >= LEAST_FAULTS);
    cr_expect_eq(number(summary, "survived"), 0, "%s", output);
    cr_expect_eq(number(summary, "false_alarms"), 0, "%s", output);
    cr_expect(number(summary, "right_kernels") > 100);
    check_matrix(json);
    cJSON_Delete(json);
    remove_folder(folder);
}

/* The matrix itself must be able to fail: a right kernel in a fault's place survives. */
static void test_survivor(void) {
    char output[OUTPUT];
    int status = run(output, "'%s' faults --quiet --level smoke --plugin '%s/libngmisbehaving_nothing.so' --filter '*/right/*'", NG_PROGRAM, NG_BUILD_DIR);
    cr_expect_eq(status, 1, "%s", output);
    cr_expect_not_null(strstr(output, "SURVIVES cast/fp32->bf16/right/rne-nosat"), "%s", output);
}

/* ---- plug-ins that misbehave --------------------------------------------------------------------------------------*/
static const struct {
    const char *kernel, *status, *reason;
} launches[] = {
    {"right", "pass", ""},
    {"crashes", "crash", "SIGSEGV"},
    {"aborts", "crash", "SIGABRT"},
    {"leaves", "crash", "left with status 0"},
    {"hangs", "timeout", ""},
    {"writes-outside", "fail", "wrote outside OUT"},
    {"writes-before", "fail", "wrote outside OUT"},
    {"writes-nothing", "fail", "never written"},
    {"changes-input", "fail", "changed its input IN"},
    {"fails", "fail", "no luck today"},
};

static void check_launch(const cJSON *cases, size_t row) {
    char part[64];
    const cJSON *one;
    int found = 0;
    snprintf(part, sizeof part, "/%s/", launches[row].kernel);
    cJSON_ArrayForEach(one, cases) {
        const char *id = cJSON_GetObjectItemCaseSensitive(one, "id")->valuestring;
        if (!strstr(id, part)) continue;
        const char *status = cJSON_GetObjectItemCaseSensitive(one, "status")->valuestring;
        const cJSON *reason = cJSON_GetObjectItemCaseSensitive(one, "reason");
        cr_expect_str_eq(status, launches[row].status, "%s is %s", id, status);
        cr_expect(cJSON_IsString(reason) ? strstr(reason->valuestring, launches[row].reason) != NULL : !*launches[row].reason,
                  "%s: %s", id, cJSON_IsString(reason) ? reason->valuestring : "no reason");
        found++;
    }
    cr_expect(found > 0, "no case of %s", launches[row].kernel);
}

static void test_launches(void) {
    char folder[64], output[OUTPUT], path[PATH_MAX];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/run.json", folder);
    int status = run(output, "cd '%s' && '%s' run --quiet --no-speed --timeout 0.5 --filter 'cast/fp32->bf16/*/rne-nosat/tails/*/normal' --plugin '%s/libngmisbehaving_nothing.so' --json '%s'",
                     folder, NG_PROGRAM, NG_BUILD_DIR, path);
    cr_expect_eq(status, 1, "%s", output);
    cJSON *json = read_json(path);
    for (size_t i = 0; i < COUNT(launches); i++)
        check_launch(cJSON_GetObjectItemCaseSensitive(json, "cases"), i);
    cJSON_Delete(json);
    remove_folder(folder);
}

static const struct {
    const char *library, *says;
} libraries[] = {
    {"libngmisbehaving_names.so", "two kernels have the name"},
    {"libngmisbehaving_launch.so", "has no launch function"},
    {"libngmisbehaving_null.so", "kernel 1 is NULL"},
    {"libngmisbehaving_empty.so", "offers 0 kernels"},
    {"libngmisbehaving_many.so", "offers 4000000 kernels"},
    {"libngmisbehaving_format.so", "that does not exist"},
    {"libngplugin_abi.so", "built for plug-in ABI 4711"},
    {"libngplugin_bytes.so", "rebuild it"},
    {"libngplugin_null.so", "returned NULL"},
    {"libngplugin_none.so", "does not export"},
    {"libngplugin_segv.so", "SIGSEGV"},
    {"libngplugin_exit.so", "left with status"},
    {"no-such-file.so", "cannot be read"},
};

/* One line on standard error, exit status 2, from run and from faults alike. */
static void test_libraries(void) {
    static const char *const commands[] = {"run --dry-run", "faults"};
    char output[OUTPUT];
    for (size_t i = 0; i < COUNT(libraries) * 2; i++) {
        const char *library = libraries[i / 2].library;
        int status = run(output, "'%s' %s --plugin '%s/%s'", NG_PROGRAM, commands[i % 2], NG_BUILD_DIR, library);
        cr_expect_eq(status, 2, "%s: exit status %d: %s", library, status, output);
        cr_expect_not_null(strstr(output, libraries[i / 2].says), "%s: %s", library, output);
        cr_expect(*output && strchr(output, '\n') == output + strlen(output) - 1, "%s: more than a line: %s", library, output);
    }
}

/* ---- a stranger's plug-in -----------------------------------------------------------------------------------------*/
static void check_example(const char *library) {
    char output[OUTPUT];
    int status = run(output, "'%s' run --quiet --no-speed --level ci --plugin '%s' --filter '*/example/*'", NG_PROGRAM, library);
    cr_expect_eq(status, 0, "the right kernel: %s", output);
    status = run(output, "'%s' faults --quiet --plugin '%s' --filter '*/example-truncated/*'", NG_PROGRAM, library);
    cr_expect_eq(status, 0, "the faulty kernel survives: %s", output);
}

/* From an installed tree, with its Makefile and with its meson.build; the CUDA variant too where there is an nvcc. */
static void test_example(void) {
    char folder[64], output[OUTPUT], path[PATH_MAX];
    make_folder(folder);
    int status = run(output, "DESTDIR='%s/root' %s install -C '%s' --no-rebuild --tags devel", folder, NG_MESON, NG_BUILD_ROOT);
    cr_assert_eq(status, 0, "%s", output);
    status = run(output, "cd '%s' && cp -r '%s' example && PKG_CONFIG_LIBDIR=$(dirname $(find root -name narrowgauge.pc)) && "
                 "export PKG_CONFIG_LIBDIR=$PWD/$PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR=$PWD/root && "
                 "make -s -C example NVFLAGS='-O0 -arch=sm_90' && %s setup build example > setup.log && ninja -C build libexample.so",
                 folder, NG_EXAMPLE_DIR, NG_MESON);
    cr_assert_eq(status, 0, "%s", output);
    snprintf(path, sizeof path, "%s/example/libexample.so", folder);
    check_example(path);
    snprintf(path, sizeof path, "%s/build/libexample.so", folder);
    check_example(path);
    snprintf(path, sizeof path, "%s/example/libexample_cuda.so", folder);
    if (!access(path, R_OK)) {
        status = run(output, "'%s' list --plugin '%s' --level ci --filter '*/example-cuda/*' --backend all", NG_PROGRAM, path);
        cr_expect(status == 0 && strstr(output, "cast/fp32->bf16/example-cuda/rne-nosat"), "%s", output);
    }
    remove_folder(folder);
}

const ng_test ng_tests[] = {
    {"faults", "every planted fault is killed, no right kernel is accused", test_matrix, 300},
    {"faults", "a right kernel in a fault's place survives", test_survivor, 60},
    {"plugins", "launches that crash, hang, leave, write elsewhere or nothing", test_launches, 60},
    {"plugins", "libraries that cannot be used are one line", test_libraries, 60},
    {"plugins", "the example builds from an installed tree; its fault is caught", test_example, 120},
};
const size_t ng_test_count = COUNT(ng_tests);
