/* Prints narrowgauge's own rounding of every bf16 (or fp16) value into a format: 65,536 lines, the code of the value
 * with bit pattern 0, 1, ... in hexadecimal, by the reference's integer tier. compare_formats.py holds them against
 * other libraries.
 *
 *   dump_round [--from bf16|fp16] [--saturate] [--nan canonical|keep-sign|max] FORMAT nearest|nearest-away|zero|up|away
 */
#include "reference/round.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char *const roundings[] = {"nearest", "nearest-away", "zero", "up",
                                        "away"};                          /* in the order of ng_rounding */
static const char *const nan_rules[] = {"canonical", "keep-sign", "max"}; /* in the order of ng_nan_rule */

static int find(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static int usage(const char *what) {
    fprintf(stderr,
            "dump_round: %s\n"
            "usage: dump_round [--from bf16|fp16] [--saturate] [--nan canonical|keep-sign|max] FORMAT "
            "nearest|nearest-away|zero|up|away\n",
            what);
    return 2;
}

static int dump(ng_format_id from, ng_format_id to, const ng_cast *cast) {
    for (uint32_t code = 0; code < 0x10000; code++)
        printf("%llx\n", (unsigned long long)ng_round(to, ng_decode(from, code), cast, 0));
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    perror("dump_round");
    return 2;
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"from", required_argument, NULL, 'f'},
                                            {"saturate", no_argument, NULL, 's'},
                                            {"nan", required_argument, NULL, 'n'},
                                            {0}};
    ng_format_id from = NG_BF16;
    ng_cast cast = {0};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        int nan = option == 'n' ? find(nan_rules, 3, optarg) : 0;
        if (option == 'f') from = ng_format_by_name(optarg);
        cast.saturate |= option == 's';
        if (option == 'n') cast.nan = (ng_nan_rule)nan;
        if (option == '?' || nan < 0) return usage("an option is unknown");
    }
    if (from != NG_BF16 && from != NG_FP16) return usage("inputs are bf16 or fp16");
    if (argc - optind != 2) return usage("a format and a rounding are wanted");
    ng_format_id to = ng_format_by_name(argv[optind]);
    int rounding = find(roundings, 5, argv[optind + 1]);
    if (to == NG_NO_FORMAT) return usage("no such format");
    if (rounding < 0) return usage("no such rounding");
    cast.rounding = (ng_rounding)rounding;
    return dump(from, to, &cast);
}
