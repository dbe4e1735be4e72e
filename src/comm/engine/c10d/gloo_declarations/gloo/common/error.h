// Nothing of it is used; see gloo_declarations/README.md.
#pragma once
