// Checked pointers that replace the pointer parameters of a generated kernel. Included after cpp_prefix.h, whose
// vectors and helpers the kernel uses.
//
// An out-of-bounds load returns 0, an out-of-bounds store is dropped; both are counted, by source line and argument.
// So are integer divisions by zero; they give what a division by 1 gives.
// Each thread remembers the integers that it loaded last, by line: an address may have been computed from them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#undef AOTI_TORCH_CHECK
#undef TORCH_CHECK
#define AOTI_TORCH_CHECK(condition, ...)                                                              \
  do {                                                                                                \
    ::replay::reached(__LINE__, -1, 1);                                                               \
    if (!(condition)) ::replay::check_failed(__LINE__, ::replay::message(#condition, ##__VA_ARGS__)); \
  } while (false)
#define TORCH_CHECK AOTI_TORCH_CHECK

namespace replay {

enum class Kind : int { load, store, atomic, element, pointer, check, division };

constexpr std::size_t kMaxRecords = 64;   // wrong accesses that are kept, one a line, argument and kind
constexpr std::size_t kMaxMemories = 48;  // of a thread: lines that loaded integers
constexpr std::int64_t kMaxLanes = 64;    // of a vector; integers of a line that are remembered
constexpr std::size_t kBlank = 1 << 16;   // bytes behind an out-of-bounds plain pointer

// Integers that one line loaded last, in a ring.
struct Loaded {
  int argument = -1;
  int line = 0;
  std::int64_t count = 0;  // of all that it loaded
  std::array<std::int64_t, kMaxLanes> elements{};
  std::array<std::int64_t, kMaxLanes> values{};
};

// The first of alike wrong accesses. `same` of them were to that very element.
struct Record {
  Kind kind;
  int line;
  int argument;
  std::int64_t element;
  std::int64_t bytes;
  std::int64_t count;
  std::int64_t same;
  std::string message;
  std::vector<Loaded> loaded;
};

struct Findings {
  std::mutex mutex;
  std::vector<Record> records;
  std::int64_t dropped = 0;  // wrong accesses of kinds that were not kept
  Record watched{Kind::load, -1, -1, 0, 0, 0, 0, "", {}};
};

inline Findings& findings() {
  static Findings all;
  return all;
}

// How often the watched line accessed its argument, or checked, whether wrongly or not.
struct Reached {
  std::atomic<int> line{-1};
  std::atomic<int> argument{-1};
  std::atomic<std::int64_t> count{0};
};

inline Reached& watched_line() {
  static Reached watched;
  return watched;
}

inline void reached(int line, int argument, std::int64_t times) {
  auto& watched = watched_line();
  if (watched.line.load(std::memory_order_relaxed) != line) return;
  if (watched.argument.load(std::memory_order_relaxed) == argument) watched.count += times;
}

inline std::vector<Loaded>& loaded_here() {
  static thread_local std::vector<Loaded> memories;
  return memories;
}

inline Loaded& memory_of(int argument, int line) {
  auto& memories = loaded_here();
  for (auto& memory : memories) {
    if (memory.argument == argument && memory.line == line) return memory;
  }
  if (memories.size() == kMaxMemories) memories.erase(memories.begin());
  memories.push_back({argument, line});
  return memories.back();
}

inline void count(Kind kind, int line, int argument, std::int64_t element, std::int64_t bytes, std::int64_t times,
                  const std::string& message) {
  auto& all = findings();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto alike = [&](const Record& r) { return r.kind == kind && r.line == line && r.argument == argument; };
  if (alike(all.watched) && all.watched.element == element) ++all.watched.same;
  for (auto& record : all.records) {
    if (alike(record)) {
      record.count += times;
      record.same += record.element == element;
      return;
    }
  }
  if (all.records.size() < kMaxRecords) {
    all.records.push_back({kind, line, argument, element, bytes, times, 1, message, loaded_here()});
  } else {
    all.dropped += times;
  }
}

template <class... Parts>
std::string message(const char* condition, const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0) {
    return condition;
  } else {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
  }
}

inline void check_failed(int line, const std::string& message) { count(Kind::check, line, -1, 0, 0, 1, message); }

template <class T>
T& blank() {
  alignas(64) static thread_local char memory[kBlank];
  std::memset(memory, 0, sizeof(T));
  return *reinterpret_cast<T*>(memory);
}

inline void* blank_block() {
  alignas(64) static thread_local char memory[kBlank];
  std::memset(memory, 0, kBlank);
  return memory;
}

// An index, and the line of the kernel that it stands on.
struct Index {
  template <class I, std::enable_if_t<std::is_convertible_v<I, std::int64_t>, int> = 0>
  Index(I value, int line = __builtin_LINE()) : value(static_cast<std::int64_t>(value)), line(line) {}
  std::int64_t value;
  int line;
};

// The argument that the caller passes in place of a data pointer.
struct Extent {
  void* data;
  std::int64_t bytes;
  std::int64_t argument;
};

template <class T>
class Pointer {
 public:
  using Element = std::remove_const_t<T>;

  T& operator[](Index at) const {
    const std::int64_t element = offset_ + at.value;
    reached(at.line, argument(), 1);
    if (!inside(element)) {
      count(Kind::element, at.line, argument(), element, sizeof(T), 1, "");
      return blank<T>();
    }
    T& value = data()[element];
    remember(element, 1, at.line);
    return value;
  }

  T& operator*() const { return (*this)[Index(0, line_)]; }

  Pointer operator+(Index by) const { return moved(by.value, by.line); }
  Pointer operator-(Index by) const { return moved(-by.value, by.line); }
  Pointer& operator+=(Index by) { return *this = moved(by.value, by.line); }
  Pointer& operator-=(Index by) { return *this = moved(-by.value, by.line); }
  Pointer& operator++() { return *this = moved(1, line_); }
  friend Pointer operator+(Index by, const Pointer& pointer) { return pointer + by; }
  friend bool operator==(const Pointer& pointer, std::nullptr_t) { return pointer.extent_.data == nullptr; }
  friend bool operator!=(const Pointer& pointer, std::nullptr_t) { return pointer.extent_.data != nullptr; }
  explicit operator bool() const { return extent_.data != nullptr; }

  // For functions that take a plain pointer: its first element is checked, and nothing behind it.
  template <class U, std::enable_if_t<std::is_same_v<std::remove_const_t<U>, Element> || std::is_void_v<U>, int> = 0>
  operator U*() const {
    if (extent_.data == nullptr) return nullptr;
    reached(line_, argument(), 1);
    if (offset_ == size()) return const_cast<Element*>(data() + offset_);
    if (!inside(offset_)) {
      count(Kind::pointer, line_, argument(), offset_, sizeof(T), 1, "");
      return static_cast<Element*>(blank_block());
    }
    return const_cast<Element*>(data() + offset_);
  }

  // Reads `n` elements; out-of-bounds ones are 0. Only lanes that are `active` are read.
  template <class Active>
  void read(Element* into, std::int64_t n, Active active, int line) const {
    std::int64_t bad = 0, first = 0;
    reached(line, argument(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      into[i] = Element();
      if (!active(i)) continue;
      if (inside(offset_ + i)) {
        into[i] = data()[offset_ + i];
      } else if (bad++ == 0) {
        first = offset_ + i;
      }
    }
    if (bad) count(Kind::load, line, argument(), first, sizeof(T), bad, "");
    remember(offset_, n, line);
  }

  // Writes `n` elements; out-of-bounds ones are dropped.
  void write(const Element* values, std::int64_t n, int line) const {
    std::int64_t bad = 0, first = 0;
    reached(line, argument(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      if (inside(offset_ + i)) {
        const_cast<Element*>(data())[offset_ + i] = values[i];
      } else if (bad++ == 0) {
        first = offset_ + i;
      }
    }
    if (bad) count(Kind::store, line, argument(), first, sizeof(T), bad, "");
  }

  // The element at an index, for an atomic operation; null if it is out of bounds.
  Element* atomic(std::int64_t index, int line) const {
    reached(line, argument(), 1);
    if (inside(offset_ + index)) return const_cast<Element*>(data() + offset_ + index);
    count(Kind::atomic, line, argument(), offset_ + index, sizeof(T), 1, "");
    return nullptr;
  }

  int line() const { return line_; }

 private:
  T* data() const { return static_cast<T*>(extent_.data); }
  int argument() const { return static_cast<int>(extent_.argument); }
  std::int64_t size() const { return extent_.bytes / static_cast<std::int64_t>(sizeof(T)); }
  bool inside(std::int64_t element) const { return element >= 0 && element < size(); }

  Pointer moved(std::int64_t by, int line) const {
    Pointer result = *this;
    result.offset_ += by;
    result.line_ = line;
    return result;
  }

  void remember(std::int64_t element, std::int64_t n, int line) const {
    if constexpr (std::is_integral_v<Element> && !std::is_same_v<Element, bool>) {
      auto& memory = memory_of(argument(), line);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t place = memory.count++ % kMaxLanes;
        memory.elements[place] = element + i;
        memory.values[place] = inside(element + i) ? static_cast<std::int64_t>(data()[element + i]) : 0;
      }
    }
  }

  Extent extent_;
  std::int64_t offset_;
  std::int64_t line_;
};

// Integer divisions. A divisor that makes the processor or the kernel fail is counted, and 1 takes its place.

template <class V>
struct LaneOf {
  using type = V;
};
template <template <class> class V, class T>
struct LaneOf<V<T>> {
  using type = T;
};
template <template <class, int> class V, class T, int N>
struct LaneOf<V<T, N>> {
  using type = T;
};

template <class T>
T usable_divisor(T divisor, int line) {
  reached(line, -1, 1);
  if (divisor != 0) return divisor;
  count(Kind::division, line, -1, 0, sizeof(T), 1, "integer division by zero");
  return T(1);
}

template <class T>
T usable_divisor(T dividend, T divisor, int line) {
  if constexpr (std::is_signed_v<T> && sizeof(T) >= sizeof(int)) {
    if (dividend == std::numeric_limits<T>::min() && divisor == T(-1)) {
      const auto text =
          std::to_string(dividend) + " / -1, which does not fit into " + std::to_string(8 * sizeof(T)) + " bits";
      reached(line, -1, 1);
      count(Kind::division, line, -1, 0, sizeof(T), 1, "integer division of " + text);
      return T(1);
    }
  }
  return usable_divisor(divisor, line);
}

template <class V>
V divisor(const V& of, int line = __builtin_LINE()) {
  using T = typename LaneOf<V>::type;
  if constexpr (std::is_same_v<T, bool> || !std::is_integral_v<T>) {
    return of;
  } else if constexpr (std::is_integral_v<V>) {
    return usable_divisor(of, line);
  } else {
    alignas(64) std::array<T, V::size()> lanes{};
    of.store(lanes.data());
    for (T& lane : lanes) lane = usable_divisor(lane, line);
    return V::loadu(lanes.data());
  }
}

template <class U, class V>
V divisor_of(const U& dividend, const V& of, int line = __builtin_LINE()) {
  using T = typename LaneOf<V>::type;
  if constexpr (!std::is_same_v<U, V> || std::is_same_v<T, bool> || !std::is_integral_v<T>) {
    return divisor(of, line);
  } else if constexpr (std::is_integral_v<V>) {
    return usable_divisor(dividend, of, line);
  } else {
    alignas(64) std::array<T, V::size()> lanes{}, dividends{};
    of.store(lanes.data());
    dividend.store(dividends.data());
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = usable_divisor(dividends[i], lanes[i], line);
    return V::loadu(lanes.data());
  }
}

template <class T>
struct IsPointer : std::false_type {};
template <class T>
struct IsPointer<Pointer<T>> : std::true_type {};

// Vectors: replacements for Vector::loadu, vector.store, mask.loadu and Mask::from.

template <class Vector, class T>
Vector loadu(const Pointer<T>& from, std::int64_t n = Vector::size(), int line = __builtin_LINE()) {
  alignas(64) std::array<std::remove_const_t<T>, Vector::size()> lanes{};
  from.read(lanes.data(), n, [](std::int64_t) { return true; }, line);
  return Vector::loadu(lanes.data(), n);
}

template <class Vector, class T>
Vector loadu(const T* from) {
  return Vector::loadu(from);
}

template <class Vector, class T>
Vector loadu(const T* from, std::int64_t n) {
  return Vector::loadu(from, n);
}

template <class Vector, class T>
void store(Vector vector, const Pointer<T>& to, std::int64_t n = Vector::size(), int line = __builtin_LINE()) {
  alignas(64) std::array<T, Vector::size()> lanes{};
  vector.store(lanes.data(), static_cast<int>(n));
  to.write(lanes.data(), n, line);
}

template <class Vector, class T>
void store(Vector vector, T* to) {
  vector.store(to);
}

template <class Vector, class T>
void store(Vector vector, T* to, std::int64_t n) {
  vector.store(to, static_cast<int>(n));
}

template <class U, int N, class Mask, class T>
auto masked_loadu(const Mask& mask, const Pointer<T>& from, int line = __builtin_LINE()) {
  using Vector = std::remove_cv_t<decltype(mask.template loadu<U, N>(static_cast<const U*>(nullptr)))>;
  alignas(64) std::array<U, Vector::size()> lanes{};
  const std::int64_t n = std::min<std::int64_t>(Vector::size(), Mask::size());
  from.read(lanes.data(), n, [&](std::int64_t i) { return mask.is_masked(static_cast<int>(i)); }, line);
  return Vector::loadu(lanes.data());
}

template <class U, int N, class Mask>
auto masked_loadu(const Mask& mask, const U* from) {
  return mask.template loadu<U, N>(from);
}

template <class Mask, class T>
Mask mask_from(const Pointer<T>& from, std::int64_t n = Mask::size(), int line = __builtin_LINE()) {
  alignas(64) std::array<std::remove_const_t<T>, Mask::size()> lanes{};
  from.read(lanes.data(), n, [](std::int64_t) { return true; }, line);
  return Mask::from(lanes.data(), static_cast<int>(n));
}

template <class Mask, class First, class... Rest,
          std::enable_if_t<!IsPointer<std::remove_cv_t<std::remove_reference_t<First>>>::value, int> = 0>
Mask mask_from(First&& first, Rest&&... rest) {
  return Mask::from(std::forward<First>(first), std::forward<Rest>(rest)...);
}

// Tiles: dst[j * ld_dst + i] = src[i * ld_src + j].

template <class T, class Source>
T tile_element(const Source& source, std::int64_t at, int line) {
  if constexpr (IsPointer<Source>::value) {
    T value{};
    (source + Index(at, line)).read(&value, 1, [](std::int64_t) { return true; }, line);
    return value;
  } else {
    return source[at];
  }
}

template <class T, bool kAtomic, class Target>
void set_tile_element(const Target& target, std::int64_t at, T value, int line) {
  if constexpr (!IsPointer<Target>::value) {
    target[at] = value;
  } else if constexpr (kAtomic) {
    if (T* place = target.atomic(at, line)) atomic_add(place, value);
  } else {
    (target + Index(at, line)).write(&value, 1, line);
  }
}

template <class T, bool kAtomic, class Source, class Target>
void transposed(const Source& source, std::int64_t ld_source, const Target& target, std::int64_t ld_target,
                std::int64_t m, std::int64_t n, int line) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const T value = tile_element<T>(source, i * ld_source + j, line);
      set_tile_element<T, kAtomic>(target, j * ld_target + i, value, line);
    }
  }
}

}  // namespace replay

// Overloads of functions in cpp_prefix.h for checked pointers.

template <class T, int NI, int NV, class Indices, class Values>
void atomic_add_vec(const replay::Pointer<T>& to, const Indices& index, const Values& values,
                    std::int64_t n = Indices::size(), int line = __builtin_LINE()) {
  alignas(64) std::array<std::int64_t, Indices::size()> at{};
  alignas(64) std::array<T, Values::size()> lanes{};
  index.store(at.data());
  values.store(lanes.data());
  for (std::int64_t i = 0; i < n; ++i) {
    if (T* place = to.atomic(at[i], line)) atomic_add(place, lanes[i]);
  }
}

template <class T, bool kAtomic, class Source, class Target,
          std::enable_if_t<replay::IsPointer<Source>::value || replay::IsPointer<Target>::value, int> = 0>
void transpose_mxn(const Source& source, std::int64_t ld_source, Target target, std::int64_t ld_target, int m, int n,
                   int line = __builtin_LINE()) {
  replay::transposed<T, kAtomic>(source, ld_source, target, ld_target, m, n, line);
}

template <class T, int M, int N, bool kAtomic, class Source, class Target,
          std::enable_if_t<replay::IsPointer<Source>::value || replay::IsPointer<Target>::value, int> = 0>
void transpose_mxn(const Source& source, std::int64_t ld_source, Target target, std::int64_t ld_target,
                   int line = __builtin_LINE()) {
  replay::transposed<T, kAtomic>(source, ld_source, target, ld_target, M, N, line);
}

// The wrong accesses, one record a line: kind, line, argument, element, bytes, count, same, then "argument element
// value" of each integer that was loaded before, then the message behind a "|". The first line counts the accesses that
// were not kept, those like the watched one, and all of its line.
extern "C" const char* replay_records() {
  static std::string text;
  auto& all = replay::findings();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::ostringstream out;
  out << all.dropped << " " << all.watched.same << " " << replay::watched_line().count << "\n";
  for (const auto& record : all.records) {
    out << static_cast<int>(record.kind) << " " << record.line << " " << record.argument << " " << record.element << " "
        << record.bytes << " " << record.count << " " << record.same;
    for (const auto& memory : record.loaded) {
      for (std::int64_t i = 0; i < std::min(memory.count, replay::kMaxLanes); ++i) {
        out << " " << memory.argument << " " << memory.elements[i] << " " << memory.values[i];
      }
    }
    std::string message = record.message;
    std::replace(message.begin(), message.end(), '\n', ' ');
    out << "|" << message << "\n";
  }
  text = out.str();
  return text.c_str();
}

// Removes all records. Accesses like the given one are counted from now on; kind -1: none are.
extern "C" void replay_watch(int kind, int line, int argument, std::int64_t element) {
  auto& all = replay::findings();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.records.clear();
  all.dropped = 0;
  replay::loaded_here().clear();
  all.watched = {static_cast<replay::Kind>(kind), line, argument, element, 0, 0, 0, "", {}};
  auto& watched = replay::watched_line();
  watched.line = line;
  watched.argument = argument;
  watched.count = 0;
}
