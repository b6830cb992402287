/* Command lines as tables: an option is a row that says its name, what it takes, where its value goes and how --help
 * describes it. GNU long options and the usual short ones; every mistake is one line that says what is allowed. */
#ifndef NG_HARNESS_ARGS_H
#define NG_HARNESS_ARGS_H

#include "harness/error.h"

#include <stdbool.h>
#include <stdio.h>

typedef enum ng_option_kind {
    NG_FLAG,     /* bool */
    NG_TEXT,     /* const char * */
    NG_TEXTS,    /* ng_texts: may be given several times */
    NG_CHOICE,   /* int: index into choices */
    NG_CHOICES,  /* unsigned: bit per choice, comma-separated */
    NG_COUNT,    /* int64_t within [least, most] */
    NG_SEED,     /* uint64_t */
    NG_SECONDS,  /* double, 0 or more */
    NG_EXTENTS,  /* int64_t[3]: MxNxK */
} ng_option_kind;

typedef struct ng_texts {
    const char **items; /* allocated; the strings are argv's own */
    size_t count;
} ng_texts;

typedef struct ng_option {
    const char *name;           /* "level" */
    char letter;                /* 'l'; 0: none */
    ng_option_kind kind;
    const char *value;          /* how help calls what it takes: "smoke|ci|nightly", "FILE" */
    const char *help;           /* may hold line breaks */
    size_t offset;              /* of the member in the structure that ng_args_parse fills */
    const char *const *choices; /* NULL-terminated */
    int64_t least, most;        /* NG_COUNT; both 0: 1 and up */
    bool selects;               /* belongs to the line that reproduces a case */
} ng_option;

typedef struct ng_given { /* an option as it was given; value NULL for a flag */
    const ng_option *option;
    const char *value;
} ng_given;

typedef struct ng_args {
    ng_given *given;
    size_t count;
    bool help;
    bool takes_operands; /* set by the caller: words that are no options are operands and not mistakes */
    ng_texts operands;
} ng_args;

/* Parses argv[1..argc) into the structure at `into`, which holds the defaults; argv[0] is not looked at. Errors name the
 * option, the value and what is allowed. May be called again on the same args and structure: later options win, lists grow. */
ng_status ng_args_parse(const ng_option *options, size_t option_count, int argc, char *const *argv, void *into,
                        ng_args *args, ng_error *error);

/* Whether an option was given. */
bool ng_args_has(const ng_args *args, const char *name);

/* Frees the lists inside the structure, and args. */
void ng_args_free(const ng_option *options, size_t option_count, void *into, ng_args *args);

/* The options' part of a --help. */
void ng_args_help(FILE *out, const ng_option *options, size_t option_count);

#endif
