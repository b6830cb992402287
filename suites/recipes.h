/* The recipes that training chooses from (recipes.c). */
#ifndef NG_SUITES_RECIPES_H
#define NG_SUITES_RECIPES_H

#include "harness/recipe.h"

extern const ng_recipes ng_suite_recipes;

#endif
