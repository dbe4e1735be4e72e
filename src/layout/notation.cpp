#include <tessera/layout/notation.h>
