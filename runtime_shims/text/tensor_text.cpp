#include "tensor_text.h"

#include <algorithm>
#include <cmath>

#include "element_text.h"
#include "python_number.h"
#include "tensors/dtype.h"
#include "tensors/elements.h"

namespace aoti_debug {
namespace {

// torch.set_printoptions, as it begins
constexpr int64_t kThreshold = 1000;
constexpr int64_t kEdgeItems = 3;
constexpr int kPrecision = 4;
constexpr size_t kLineWidth = 80;
constexpr std::string_view kPrefix = "tensor(";

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

bool is_cut(int64_t size) { return size > 2 * kEdgeItems; }

// How the elements of one tensor (or one part of complex ones) are written, all equally wide.
class NumberColumn {
 public:
  explicit NumberColumn(const std::vector<double>& values) {
    double least = 0, most = 0;
    bool whole = true, any = false;
    for (const double value : values) {
      if (!std::isfinite(value) || value == 0) continue;
      const double magnitude = std::fabs(value);
      least = any ? std::min(least, magnitude) : magnitude;
      most = any ? std::max(most, magnitude) : magnitude;
      whole &= value == std::ceil(value);
      any = true;
    }
    if (!any) return;
    whole_ = whole;
    scientific_ = most / least > 1000.0 || most > 1.0e8 || least < 1.0e-4;
    for (const double value : values) {
      if (!std::isfinite(value) || value == 0) continue;
      const size_t extra = whole_ && !scientific_ ? 1 : 0;  // of the point
      width_ = std::max(width_, digits(value).size() + extra);
    }
  }

  explicit NumberColumn(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) width_ = std::max(width_, text.size());
  }

  size_t width() const { return width_; }

  std::string cell(double value) const {
    std::string text = digits(value);
    if (whole_ && !scientific_ && std::isfinite(value)) text += '.';
    return cell(text);
  }
  std::string cell(const std::string& text) const {
    return text.size() < width_ ? std::string(width_ - text.size(), ' ') + text : text;
  }

 private:
  std::string digits(double value) const {
    if (scientific_) return python_digits(value, 'e', kPrecision);
    return python_digits(value, 'f', whole_ ? 0 : kPrecision);
  }

  bool whole_ = true;
  bool scientific_ = false;
  size_t width_ = 1;
};

double part_of_complex(const PrintedTensor& tensor, size_t index, size_t part) {
  const size_t bytes = dtype(tensor.dtype).bytes / 2u;
  const int32_t real = tensor.dtype == kComplex128 ? kFloat64 : tensor.dtype == kComplex64 ? kFloat32 : kFloat16;
  return element_value(real, tensor.bytes.data() + (2 * index + part) * bytes);
}

const uint8_t* element_of(const PrintedTensor& tensor, size_t index) {
  return tensor.bytes.data() + index * dtype(tensor.dtype).bytes;
}

// The elements of a tensor in words.
std::vector<std::string> cells_of(const PrintedTensor& tensor, size_t* width) {
  const auto count = static_cast<size_t>(product(tensor.shown));
  std::vector<std::string> cells;
  const Kind kind = dtype(tensor.dtype).kind;
  if (kind == Kind::kComplex) {
    std::vector<double> real, imaginary;
    for (size_t i = 0; i < count; ++i) {
      real.push_back(part_of_complex(tensor, i, 0));
      imaginary.push_back(part_of_complex(tensor, i, 1));
    }
    const NumberColumn left(real), right(imaginary);
    for (size_t i = 0; i < count; ++i) {
      std::string part = right.cell(imaginary[i]) + "j";
      part.erase(0, part.find_first_not_of(' '));
      cells.push_back(left.cell(real[i]) + (part[0] == '-' ? "" : "+") + part);
    }
    *width = left.width() + right.width() + 1;
  } else if (kind == Kind::kFloat) {
    std::vector<double> values;
    values.reserve(count);
    for (size_t i = 0; i < count; ++i) values.push_back(element_value(tensor.dtype, element_of(tensor, i)));
    const NumberColumn column(values);
    for (const double value : values) cells.push_back(column.cell(value));
    *width = column.width();
  } else {
    for (size_t i = 0; i < count; ++i) append_element(cells.emplace_back(), tensor.dtype, element_of(tensor, i));
    const NumberColumn column(cells);
    for (std::string& cell : cells) cell = column.cell(cell);
    *width = column.width();
  }
  return cells;
}

// Writes the brackets of one tensor.
class Brackets {
 public:
  explicit Brackets(const PrintedTensor& tensor)
      : tensor_(tensor), cells_(cells_of(tensor, &width_)), summarized_(product(tensor.sizes) > kThreshold) {}

  std::string text(size_t indent) {
    if (tensor_.sizes.empty()) return cells_[0];
    return text_of(0, indent);
  }

 private:
  std::string text_of(size_t dim, size_t indent) {
    const bool cut = summarized_ && is_cut(tensor_.sizes[dim]);
    const bool last = dim + 1 == tensor_.sizes.size();
    std::vector<std::string> parts;
    for (int64_t i = 0; i < tensor_.shown[dim]; ++i) {
      if (cut && i == kEdgeItems) parts.emplace_back(last ? " ..." : "...");
      parts.push_back(last ? cells_[next_++] : text_of(dim + 1, indent + 1));
    }
    return "[" + (last ? lines_of(parts, indent) : blocks_of(parts, dim, indent)) + "]";
  }

  std::string lines_of(const std::vector<std::string>& parts, size_t indent) const {
    const size_t room = indent < kLineWidth ? kLineWidth - indent : 0;
    const size_t per_line = std::max<size_t>(1, room / (width_ + 2));
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i != 0) text += i % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      text += parts[i];
    }
    return text;
  }

  std::string blocks_of(const std::vector<std::string>& parts, size_t dim, size_t indent) const {
    const size_t blank = tensor_.sizes.size() - dim - 1;
    const std::string gap = "," + std::string(blank, '\n') + std::string(indent + 1, ' ');
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : gap) + parts[i];
    return text;
  }

  const PrintedTensor& tensor_;
  size_t width_ = 0;
  std::vector<std::string> cells_;
  bool summarized_;
  size_t next_ = 0;
};

std::string size_text(const std::vector<int64_t>& sizes) {
  std::string text = "size=(";
  for (size_t d = 0; d < sizes.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(sizes[d]);
  return text + ")";
}

std::string with_suffixes(std::string text, const std::vector<std::string>& suffixes) {
  const size_t newline = text.rfind('\n');
  size_t line = newline == std::string::npos ? text.size() + 2 : text.size() - newline + 1;
  for (const std::string& suffix : suffixes) {
    if (line + suffix.size() + 2 > kLineWidth) {
      text += ",\n" + std::string(kPrefix.size(), ' ') + suffix;
      line = kPrefix.size() + suffix.size();
    } else {
      text += ", " + suffix;
      line += suffix.size() + 2;
    }
  }
  return text + ")";
}

}  // namespace

std::vector<int64_t> printed_sizes(const device::TensorView& view) {
  std::vector<int64_t> sizes(view.sizes, view.sizes + view.ndim);
  if (view.numel <= kThreshold) return sizes;
  for (int64_t& size : sizes) size = is_cut(size) ? 2 * kEdgeItems : size;
  return sizes;
}

device::TensorView printed_view(const device::TensorView& view, std::vector<int64_t>* dims) {
  std::vector<int64_t> sizes, strides;
  for (uint32_t d = 0; d < view.ndim; ++d) {
    const bool cut = view.numel > kThreshold && is_cut(view.sizes[d]);
    if (cut) {
      sizes.push_back(2);  // both edges, as a dimension of their own
      strides.push_back((view.sizes[d] - kEdgeItems) * view.strides[d]);
    }
    sizes.push_back(cut ? kEdgeItems : view.sizes[d]);
    strides.push_back(view.strides[d]);
  }
  *dims = sizes;
  dims->insert(dims->end(), strides.begin(), strides.end());
  device::TensorView printed = view;
  printed.ndim = static_cast<uint32_t>(sizes.size());
  printed.sizes = dims->data();
  printed.strides = dims->data() + sizes.size();
  printed.numel = product(sizes);
  return printed;
}

std::string tensor_repr(const PrintedTensor& tensor) {
  if (!tensor.unread.empty()) return "<" + tensor.unread + ">";
  std::vector<std::string> suffixes;
  if (!tensor.device.empty()) suffixes.push_back("device='" + tensor.device + "'");
  const bool empty = product(tensor.sizes) == 0;
  if (empty && tensor.sizes.size() != 1) suffixes.push_back(size_text(tensor.sizes));
  const bool usual = tensor.dtype == kFloat32 ||
                     (!empty && (tensor.dtype == kInt64 || tensor.dtype == kBoolean || tensor.dtype == kComplex64));
  if (!usual) suffixes.push_back(std::string("dtype=torch.") + dtype(tensor.dtype).name);
  const std::string inner = empty ? "[]" : Brackets(tensor).text(kPrefix.size());
  return with_suffixes(std::string(kPrefix) + inner, suffixes);
}

std::string format_tensor(const PrintedTensor& tensor, std::string_view spec) {
  if (!tensor.unread.empty() || !tensor.sizes.empty()) return tensor_repr(tensor);
  const Kind kind = dtype(tensor.dtype).kind;
  if (kind == Kind::kComplex) return python_complex(part_of_complex(tensor, 0, 0), part_of_complex(tensor, 0, 1));
  const double value = element_value(tensor.dtype, tensor.bytes.data());
  if (kind == Kind::kFloat) return spec.empty() ? python_float(value) : format_python_float(value, spec);
  std::string text;
  append_element(text, tensor.dtype, tensor.bytes.data());
  if (spec.empty()) return text;
  if (kind == Kind::kBool) text = value != 0 ? "1" : "0";
  return format_python_int(text, value, spec);
}

}  // namespace aoti_debug
