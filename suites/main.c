/* The program: its commands, the built-in kernels, the case tables and the facts of the build, handed to the harness. */
#include "harness/command.h"
#include "harness/gpu_probe.h"
#include "kernels/catalogue.h"
#include "suites/cases.h"
#include "suites/faults.h"
#include "suites/recipes.h"
#include "suites/replay.h"
#include "suites/training/train.h"
#include "suites/build_facts.h"
#include "suites/build_commit.h"
#include "suites/kernels_digest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const ng_command commands[] = {
    {"run", "run kernels against exact references", ng_command_run},
    {"list", "print the cases that run would run", ng_command_list},
    {"shapes", "print the products that training a model takes", ng_command_shapes},
    {"compare", "compare the records of runs: what changed, and whether it may", ng_command_compare},
    {"validate", "accept or reject a driver, a library or a GPU", ng_command_validate},
    {"golden", "record the bits that results have, or compare with recorded ones", ng_command_golden},
    {"history", "keep the results of all runs, and find where a case changed", ng_command_history},
    {"replay", "compute recorded tensor-core steps by a contract's model", ng_command_replay},
    {"train", "train small models under recipes, and test whether one is worse", ng_command_train},
    {"faults", "run faulty kernels: what the judge would miss, and what others do", ng_command_faults},
};

static const ng_build build = {
    .version = NG_BUILD_VERSION,
    .commit = NG_BUILD_COMMIT,
    .compiler = NG_BUILD_COMPILER,
    .compiler_flags = NG_BUILD_FLAGS,
    .nvcc = NG_BUILD_NVCC,
    .nvcc_flags = NG_BUILD_NVCC_FLAGS,
    .kernels_digest = NG_BUILD_KERNELS_DIGEST,
};

static const ng_judge_functions judge = {ng_judge_create, ng_judge_case, ng_judge_free};

/* A closed standard stream would give its number to the next file opened, and what is printed would go there. */
static void open_standard_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(NG_EXIT_NO_VERDICT);
}

int main(int argc, char **argv) {
    open_standard_streams();
    size_t count = ng_builtin_kernels(NULL, 0);
    const ng_kernel **kernels = calloc(count + 1, sizeof *kernels);
    if (!kernels) {
        fputs("narrowgauge: out of memory\n", stderr);
        return NG_EXIT_NO_VERDICT;
    }
    ng_builtin_kernels(kernels, count);
    const ng_program program = {
        .name = "narrowgauge",
        .summary = "Measures narrow number formats: every low-precision kernel against exact references, within bounds proved\n"
                   "from its own arithmetic, bit for bit where its order is fixed, and timed in the same run.",
        .build = &build,
        .commands = commands,
        .command_count = sizeof commands / sizeof *commands,
        .kernels = kernels,
        .kernel_count = count,
        .rows = ng_case_rows,
        .row_count = ng_case_row_count,
        .recipes = ng_suite_recipes,
        .judge = &judge,
        .gpu_probe = ng_probe_gpu,
    };
    int status = ng_program_main(&program, argc, argv);
    free(kernels);
    return status;
}
