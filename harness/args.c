#include "harness/args.h"
#include "harness/text.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 64, HELP = 256, FIRST_LONG };

/* ---- values -------------------------------------------------------------------------------------------------------*/
static ng_status bad_value(const ng_option *option, const char *text, const char *allowed, ng_error *error) {
    return ng_fail(error, NG_BAD_ARGUMENT, "--%s '%s': expected %s", option->name, text, allowed);
}

static ng_status parse_whole(const ng_option *option, const char *text, void *into, ng_error *error) {
    int64_t least = option->least, most = option->most;
    if (!least && !most) least = 1, most = INT64_MAX;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most || *text == ' ' || *text == '+') {
        char allowed[80];
        if (most == INT64_MAX) snprintf(allowed, sizeof allowed, "a whole number, %lld or more", (long long)least);
        else snprintf(allowed, sizeof allowed, "a whole number from %lld to %lld", (long long)least, (long long)most);
        return bad_value(option, text, allowed, error);
    }
    *(int64_t *)into = value;
    return NG_OK;
}

static ng_status parse_seed(const ng_option *option, const char *text, void *into, ng_error *error) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (end == text || *end || errno || *text < '0' || *text > '9')
        return bad_value(option, text, "a whole number from 0 to 2^64 - 1", error);
    *(uint64_t *)into = value;
    return NG_OK;
}

static ng_status parse_seconds(const ng_option *option, const char *text, void *into, ng_error *error) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0 || value > 1e7)
        return bad_value(option, text, "seconds, 0 to 1e7", error);
    *(double *)into = value;
    return NG_OK;
}

static ng_status parse_extents(const ng_option *option, const char *text, void *into, ng_error *error) {
    int64_t *extents = into, value[3];
    const char *at = text;
    for (int i = 0; i < 3; i++) {
        char *end;
        errno = 0;
        value[i] = strtoll(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || value[i] < 1 || value[i] > INT32_MAX || *end != (i < 2 ? 'x' : 0))
            return bad_value(option, text, "MxNxK, three whole numbers from 1 to 2147483647 such as 512x4096x14336", error);
        at = end + 1;
    }
    memcpy(extents, value, sizeof value);
    return NG_OK;
}

static int find_choice(const ng_option *option, const char *text, size_t length) {
    for (int i = 0; option->choices[i]; i++)
        if (strlen(option->choices[i]) == length && !strncmp(option->choices[i], text, length)) return i;
    return -1;
}

static ng_status unknown_choice(const ng_option *option, const char *text, size_t length, ng_error *error) {
    char allowed[512] = "one of ";
    size_t used = strlen(allowed), count = 0;
    for (; option->choices[count]; count++)
        used += (size_t)snprintf(allowed + used, used < sizeof allowed ? sizeof allowed - used : 0, "%s%s",
                                 count ? ", " : "", option->choices[count]);
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)length, text);
    const char *near = ng_nearest(word, option->choices, count);
    if (!near) return bad_value(option, word, allowed, error);
    return ng_fail(error, NG_BAD_ARGUMENT, "--%s '%s': did you mean '%s'? Expected %s", option->name, word, near, allowed);
}

static ng_status parse_choice(const ng_option *option, const char *text, void *into, ng_error *error) {
    int choice = find_choice(option, text, strlen(text));
    if (choice < 0) return unknown_choice(option, text, strlen(text), error);
    *(int *)into = choice;
    return NG_OK;
}

static ng_status parse_choices(const ng_option *option, const char *text, void *into, ng_error *error) {
    unsigned bits = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        int choice = find_choice(option, at, length);
        if (choice < 0) return unknown_choice(option, at, length, error);
        bits |= 1u << choice;
        at += length;
        if (!*at) break;
    }
    *(unsigned *)into = bits;
    return NG_OK;
}

static ng_status append_text(const char *text, ng_texts *texts, ng_error *error) {
    const char **items = realloc(texts->items, (texts->count + 1) * sizeof *items);
    if (!items) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    texts->items = items;
    items[texts->count++] = text;
    return NG_OK;
}

static ng_status parse_value(const ng_option *option, const char *text, void *into, ng_error *error) {
    void *member = (char *)into + option->offset;
    switch (option->kind) {
    case NG_FLAG: *(bool *)member = true; return NG_OK;
    case NG_TEXT:
        if (!*text) return bad_value(option, text, option->value, error);
        *(const char **)member = text;
        return NG_OK;
    case NG_TEXTS:
        if (!*text) return bad_value(option, text, option->value, error);
        return append_text(text, member, error);
    case NG_CHOICE: return parse_choice(option, text, member, error);
    case NG_CHOICES: return parse_choices(option, text, member, error);
    case NG_COUNT: return parse_whole(option, text, member, error);
    case NG_SEED: return parse_seed(option, text, member, error);
    case NG_SECONDS: return parse_seconds(option, text, member, error);
    case NG_EXTENTS: return parse_extents(option, text, member, error);
    }
    return ng_fail(error, NG_INTERNAL, "--%s: no such kind of option", option->name);
}

/* ---- the line -----------------------------------------------------------------------------------------------------*/
static ng_status unknown_option(const ng_option *options, size_t count, const char *word, ng_error *error) {
    const char *names[MOST_OPTIONS + 1] = {"help"};
    char name[64];
    size_t dashes = strspn(word, "-"), matches = 0, length;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    length = strlen(name);
    for (size_t i = 0; i < count; i++) {
        names[i + 1] = options[i].name;
        matches += !strncmp(options[i].name, name, length);
    }
    if (dashes == 2 && matches > 1) {
        char list[512] = "";
        size_t used = 0;
        for (size_t i = 0; i < count && used < sizeof list; i++)
            if (!strncmp(options[i].name, name, length))
                used += (size_t)snprintf(list + used, sizeof list - used, "%s--%s", used ? ", " : "", options[i].name);
        return ng_fail(error, NG_BAD_ARGUMENT, "--%s is ambiguous: %s", name, list);
    }
    const char *near = dashes == 2 ? ng_nearest(name, names, count + 1) : NULL;
    if (near) return ng_fail(error, NG_BAD_ARGUMENT, "unknown option --%s; did you mean --%s?", name, near);
    return ng_fail(error, NG_BAD_ARGUMENT, "unknown option %.*s%s; --help lists the options", (int)dashes, word, name);
}

static const ng_option *by_code(const ng_option *options, size_t count, int code) {
    if (code >= FIRST_LONG) return &options[code - FIRST_LONG];
    for (size_t i = 0; i < count; i++)
        if (options[i].letter && options[i].letter == code) return &options[i];
    return NULL;
}

static ng_status remember(ng_args *args, const ng_option *option, const char *value, ng_error *error) {
    ng_given *given = realloc(args->given, (args->count + 1) * sizeof *given);
    if (!given) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    args->given = given;
    given[args->count++] = (ng_given){option, value};
    return NG_OK;
}

static void describe_options(const ng_option *options, size_t count, struct option *longs, char *shorts) {
    *shorts++ = ':'; /* a missing value is told apart from an unknown option */
    *shorts++ = 'h';
    for (size_t i = 0; i < count; i++) {
        int argument = options[i].kind == NG_FLAG ? no_argument : required_argument;
        longs[i] = (struct option){options[i].name, argument, NULL, FIRST_LONG + (int)i};
        if (!options[i].letter) continue;
        *shorts++ = options[i].letter;
        if (argument == required_argument) *shorts++ = ':';
    }
    longs[count] = (struct option){"help", no_argument, NULL, HELP};
    longs[count + 1] = (struct option){0};
    *shorts = 0;
}

ng_status ng_args_parse(const ng_option *options, size_t option_count, int argc, char *const *argv, void *into,
                        ng_args *args, ng_error *error) {
    struct option longs[MOST_OPTIONS + 2];
    char shorts[2 * MOST_OPTIONS + 3];
    ng_status status = NG_OK;
    if (option_count > MOST_OPTIONS) return ng_fail(error, NG_INTERNAL, "too many options");
    char **permuted = calloc((size_t)argc + 1, sizeof *permuted); /* getopt_long moves operands to the end */
    if (!permuted) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    memcpy(permuted, argv, (size_t)argc * sizeof *permuted);
    describe_options(options, option_count, longs, shorts);
    optind = 0;
    opterr = 0;
    while (!status) {
        int code = getopt_long(argc, permuted, shorts, longs, NULL);
        if (code == -1) break;
        if (code == 'h' || code == HELP) {
            args->help = true;
            continue;
        }
        const ng_option *option = by_code(options, option_count, code == '?' || code == ':' ? optopt : code);
        if (code == ':' && option)
            status = ng_fail(error, NG_BAD_ARGUMENT, "--%s needs a value: %s", option->name, option->value);
        else if (code == '?' && option && optopt >= FIRST_LONG)
            status = ng_fail(error, NG_BAD_ARGUMENT, "--%s takes no value", option->name);
        else if (code == '?' || !option) {
            char letter[3] = {'-', (char)optopt, 0};
            status = unknown_option(options, option_count, optopt > 0 && optopt < HELP ? letter : permuted[optind - 1], error);
        } else {
            status = parse_value(option, optarg, into, error);
            if (!status) status = remember(args, option, optarg, error);
        }
    }
    for (; !status && args->takes_operands && optind < argc; optind++)
        status = append_text(permuted[optind], &args->operands, error);
    if (!status && optind < argc && !args->help)
        status = ng_fail(error, NG_BAD_ARGUMENT, "unexpected argument '%s'; options begin with --", permuted[optind]);
    free(permuted);
    return status;
}

bool ng_args_has(const ng_args *args, const char *name) {
    for (size_t i = 0; i < args->count; i++)
        if (!strcmp(args->given[i].option->name, name)) return true;
    return false;
}

void ng_args_free(const ng_option *options, size_t option_count, void *into, ng_args *args) {
    for (size_t i = 0; i < option_count; i++)
        if (options[i].kind == NG_TEXTS) {
            ng_texts *texts = (ng_texts *)(void *)((char *)into + options[i].offset);
            free(texts->items);
            *texts = (ng_texts){0};
        }
    free(args->given);
    free(args->operands.items);
    *args = (ng_args){0};
}

/* ---- help ---------------------------------------------------------------------------------------------------------*/
enum { HELP_COLUMN = 30 };

static void print_indented(FILE *out, const char *text, int column) {
    for (; *text; text++) {
        fputc(*text, out);
        if (*text == '\n') fprintf(out, "%*s", column, "");
    }
    fputc('\n', out);
}

static void print_option(FILE *out, char letter, const char *name, const char *value, const char *help) {
    int width = letter ? fprintf(out, "  -%c, --%s", letter, name) : fprintf(out, "      --%s", name);
    if (value) width += fprintf(out, " %s", value);
    if (width < HELP_COLUMN - 1) fprintf(out, "%*s", HELP_COLUMN - width, "");
    else fprintf(out, "\n%*s", HELP_COLUMN, "");
    print_indented(out, help, HELP_COLUMN);
}

void ng_args_help(FILE *out, const ng_option *options, size_t option_count) {
    for (size_t i = 0; i < option_count; i++)
        print_option(out, options[i].letter, options[i].name, options[i].value, options[i].help);
    print_option(out, 'h', "help", NULL, "this text");
}
