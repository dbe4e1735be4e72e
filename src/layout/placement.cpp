#include <tessera/layout/placement.h>
