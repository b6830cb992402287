/* Where the program's own data are: beside the program, wherever it was put, so that a copied or moved installation works. */
#ifndef NG_HARNESS_INSTALL_H
#define NG_HARNESS_INSTALL_H

#include "harness/error.h"

/* The path of PREFIX/share/narrowgauge/NAME, PREFIX being the folder above the program's own; to be freed. NG_IO: there is no
 * such file, *path is NULL. */
ng_status ng_installed_file(const char *name, char **path);

#endif
