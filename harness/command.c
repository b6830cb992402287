#include "harness/command.h"
#include "harness/text.h"

#include <string.h>

enum { MOST_COMMANDS = 64 };

int ng_no_verdict(const ng_program *program, const char *command, const char *text) {
    fflush(stdout);
    fprintf(stderr, "%s%s%s: %s\n", program->name, command ? " " : "", command ? command : "", text);
    return NG_EXIT_NO_VERDICT;
}

void ng_command_usage(FILE *out, const ng_program *program, const char *command, const char *text) {
    fprintf(out, "usage: %s %s [OPTION...]\n\n%s\n\n", program->name, command, text);
}

static void print_help(FILE *out, const ng_program *program) {
    fprintf(out, "usage: %s COMMAND [OPTION...]\n\n%s\n\n", program->name, program->summary);
    for (size_t i = 0; i < program->command_count; i++)
        fprintf(out, "  %-10s %s\n", program->commands[i].name, program->commands[i].summary);
    fprintf(out,
            "\n'%s COMMAND --help' describes a command's options; --version says what this is.\n"
            "Exit status: 0 no regression; 1 a case failed or regressed; 2 no verdict could be given.\n",
            program->name);
}

static int unknown_command(const ng_program *program, const char *word) {
    const char *names[MOST_COMMANDS];
    char text[256];
    size_t count = program->command_count < MOST_COMMANDS ? program->command_count : MOST_COMMANDS;
    for (size_t i = 0; i < count; i++)
        names[i] = program->commands[i].name;
    const char *near = ng_nearest(word, names, count);
    if (near) snprintf(text, sizeof text, "unknown command '%.64s'; did you mean '%s'?", word, near);
    else snprintf(text, sizeof text, "unknown command '%.64s'; --help lists the commands", word);
    return ng_no_verdict(program, NULL, text);
}

/* Whatever was printed must have arrived: a full disk is not a success. */
static int finish(const ng_program *program, int status) {
    if (!fflush(stdout) && !ferror(stdout)) return status;
    return ng_no_verdict(program, NULL, "standard output could not be written");
}

int ng_program_main(const ng_program *program, int argc, char **argv) {
    if (argc < 2) return ng_no_verdict(program, NULL, "no command; --help lists the commands");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout, program);
        return finish(program, NG_EXIT_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("%s %s (%s, kernels %.16s)\n", program->name, program->build->version,
               *program->build->commit ? program->build->commit : "no commit", program->build->kernels_digest);
        return finish(program, NG_EXIT_OK);
    }
    for (size_t i = 0; i < program->command_count; i++)
        if (!strcmp(argv[1], program->commands[i].name))
            return finish(program, program->commands[i].run(program, argc - 1, argv + 1));
    return unknown_command(program, argv[1]);
}
