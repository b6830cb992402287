#include "harness/text.h"

#include <stdbool.h>
#include <string.h>

size_t ng_utf8_length(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xBF; /* of the second byte: no overlong form, no surrogate, nothing above U+10FFFF */
    size_t length;
    if (s[0] == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) length = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF) length = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4) length = 4;
    else return 0;
    if (s[0] == 0xE0) low = 0xA0;
    if (s[0] == 0xED) high = 0x9F;
    if (s[0] == 0xF0) low = 0x90;
    if (s[0] == 0xF4) high = 0x8F;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if (s[i] < 0x80 || s[i] > 0xBF) return 0;
    return length;
}

enum { LONGEST_NAME = 64 };

/* Insertions, deletions and substitutions (Levenshtein 1965), one row at a time. */
static size_t edit_distance(const char *a, const char *b) {
    size_t row[LONGEST_NAME + 1], n = strlen(b);
    if (n > LONGEST_NAME) return n;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (; *a; a++) {
        size_t diagonal = row[0]++;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (*a != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

const char *ng_nearest(const char *word, const char *const *names, size_t count) {
    size_t best = strlen(word) / 3 + 2;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, names[i]);
        if (distance >= best) continue;
        best = distance;
        nearest = names[i];
    }
    return nearest;
}

static void put(char *out, size_t capacity, size_t *length, char c) {
    if (*length + 1 < capacity) {
        out[*length] = c;
        out[*length + 1] = 0;
    }
    ++*length;
}

size_t ng_shell_quote(const char *word, char *out, size_t capacity) {
    size_t length = 0;
    size_t safe = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%");
    bool quoted = !*word || word[safe];
    if (capacity) out[0] = 0;
    if (quoted) put(out, capacity, &length, '\'');
    for (; *word; word++) {
        if (*word != '\'') put(out, capacity, &length, *word);
        else
            for (const char *c = "'\\''"; *c; c++)
                put(out, capacity, &length, *c);
    }
    if (quoted) put(out, capacity, &length, '\'');
    return length;
}

size_t ng_glob_quote(const char *text, char *out, size_t capacity) {
    size_t length = 0;
    if (capacity) out[0] = 0;
    for (; *text; text++) {
        if (strchr("*?[\\", *text)) put(out, capacity, &length, '\\');
        put(out, capacity, &length, *text);
    }
    return length;
}
