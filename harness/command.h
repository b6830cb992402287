/* The program as data: its commands, kernels, case tables and build facts, handed in by `main`, and the dispatch from a
 * command line to a command. Exit status: 0 no regression, 1 a case failed or regressed, 2 no verdict. */
#ifndef NG_HARNESS_COMMAND_H
#define NG_HARNESS_COMMAND_H

#include "harness/args.h"
#include "harness/expand.h"
#include "harness/fingerprint.h"
#include "harness/worker.h"

enum { NG_EXIT_OK = 0, NG_EXIT_REGRESSION = 1, NG_EXIT_NO_VERDICT = 2 };

struct ng_program;

typedef struct ng_command {
    const char *name;
    const char *summary; /* one line */
    int (*run)(const struct ng_program *program, int argc, char **argv); /* argv[0]: its name; argv[-1]: the program's */
} ng_command;

typedef struct ng_program {
    const char *name, *summary;
    const ng_build *build;
    const ng_command *commands;
    size_t command_count;
    const ng_kernel *const *kernels; /* the built-in catalogue */
    size_t kernel_count;
    const ng_case_row *rows;         /* the suites' tables */
    size_t row_count;
    ng_recipes recipes;              /* what --recipe chooses from; may be none */
    const ng_judge_functions *judge;
    ng_gpu_probe gpu_probe;          /* NULL: none */
} ng_program;

/* Runs the command that argv names and returns the exit status. */
int ng_program_main(const ng_program *program, int argc, char **argv);

/* "narrowgauge run: TEXT" on standard error; returns NG_EXIT_NO_VERDICT. */
int ng_no_verdict(const ng_program *program, const char *command, const char *text);

/* The head of a command's --help; its options follow. */
void ng_command_usage(FILE *out, const ng_program *program, const char *command, const char *text);

/* The commands that the harness itself brings, for rows of a program's table. */
int ng_command_run(const ng_program *program, int argc, char **argv);
int ng_command_list(const ng_program *program, int argc, char **argv);
int ng_command_shapes(const ng_program *program, int argc, char **argv);
int ng_command_history(const ng_program *program, int argc, char **argv);
int ng_command_golden(const ng_program *program, int argc, char **argv);
int ng_command_compare(const ng_program *program, int argc, char **argv);
int ng_command_validate(const ng_program *program, int argc, char **argv);

#endif
