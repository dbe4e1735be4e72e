#include <tessera/layout/layout.h>
