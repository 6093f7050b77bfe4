// SPDX-License-Identifier: Apache-2.0
//
// The tables of noise.h, made once.
#include "workload/noise.h"

#include <cmath>

#include "base/check.h"

namespace segue::workload {
namespace {

double Tail(double probability) {
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                          3.754408661907416e+00};
  const double q = std::sqrt(-2.0 * std::log(probability));
  const double above = ((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5];
  const double below = (((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1.0;
  return above / below;
}

double Middle(double probability) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                          6.680131188771972e+01, -1.328068155288572e+01};
  const double q = probability - 0.5;
  const double r = q * q;
  const double above = ((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5];
  const double below = ((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1.0;
  return q * above / below;
}

}  // namespace

double NormalQuantile(double probability) {
  constexpr double kTail = 0.02425;
  SEGUE_CHECK(probability > 0 && probability < 1);
  if (probability < kTail) return Tail(probability);
  if (probability > 1 - kTail) return -Tail(1 - probability);
  return Middle(probability);
}

NormalTable::NormalTable() {
  const std::size_t count = edges_.size() - 1;
  edges_[0] = -kBound;
  edges_[count] = kBound;
  for (std::size_t i = 1; i < count; ++i) {
    edges_[i] =
        static_cast<float>(NormalQuantile(static_cast<double>(i) / static_cast<double>(count)));
  }
}

const NormalTable& NormalTable::Get() {
  static const NormalTable table;
  return table;
}

LogNormalTable::LogNormalTable(double spread) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const double probability = (static_cast<double>(i) + 0.5) / static_cast<double>(values_.size());
    values_[i] = static_cast<float>(std::exp(spread * NormalQuantile(probability)));
  }
}

}  // namespace segue::workload
