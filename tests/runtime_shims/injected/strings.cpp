// The runtime's own copy of what the C++ library has compiled, so that its allocations are the runtime's.
#include <string>

template class std::basic_string<char>;
