/* Strings that come from outside: bytes that may not be UTF-8, names that may be misspelt, words for a shell. */
#ifndef NG_HARNESS_TEXT_H
#define NG_HARNESS_TEXT_H

#include <stddef.h>

/* Length in bytes of the well-formed UTF-8 sequence (Unicode 15, table 3-7) at the start of text; 0 if there is none. */
size_t ng_utf8_length(const char *text);

/* The nearest of `count` names by edit distance, or NULL if none is near enough to be a slip of the hand. */
const char *ng_nearest(const char *word, const char *const *names, size_t count);

/* Writes word as one word of a POSIX shell: as it is where that is safe, in single quotes otherwise. Returns the length
 * that the whole takes, as snprintf does. */
size_t ng_shell_quote(const char *word, char *out, size_t capacity);

/* Writes a pattern that matches exactly `text` with fnmatch. Returns the length that it takes. */
size_t ng_glob_quote(const char *text, char *out, size_t capacity);

#endif
