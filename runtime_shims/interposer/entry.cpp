// The way in and out of a function whose parameters are not known: every register that may hold an argument, and the
// arguments on the stack, are handed on as they came. Both frames can be unwound, so exceptions pass through.
#include "interposer.h"

#if !defined(__x86_64__)
#error "calls can only be interposed on x86-64"
#endif

static_assert(offsetof(AotiDebugFrame, floats) == 48, "");
static_assert(offsetof(AotiDebugFrame, rax) == 176, "");
static_assert(offsetof(AotiDebugFrame, stack) == 184, "");
static_assert(offsetof(AotiDebugFrame, caller) == 192, "");
static_assert(offsetof(AotiDebugFrame, rdx) == 200, "");
static_assert(offsetof(AotiDebugFrame, float_results) == 208, "");
static_assert(sizeof(AotiDebugFrame) == 240, "");

// In: %r11d the symbol's index; everything else as the caller left it.
asm(R"(
  .text
  .p2align 4
  .globl aoti_debug_interposed_entry
  .hidden aoti_debug_interposed_entry
  .type aoti_debug_interposed_entry, @function
aoti_debug_interposed_entry:
  .cfi_startproc
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $240, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movups %xmm0, 48(%rsp)
  movups %xmm1, 64(%rsp)
  movups %xmm2, 80(%rsp)
  movups %xmm3, 96(%rsp)
  movups %xmm4, 112(%rsp)
  movups %xmm5, 128(%rsp)
  movups %xmm6, 144(%rsp)
  movups %xmm7, 160(%rsp)
  movq %rax, 176(%rsp)
  leaq 16(%rbp), %rax
  movq %rax, 184(%rsp)
  movq 8(%rbp), %rax
  movq %rax, 192(%rsp)
  movl %r11d, %edi
  movq %rsp, %rsi
  call aoti_debug_interposed_dispatch
  movq 176(%rsp), %rax
  movq 200(%rsp), %rdx
  movups 208(%rsp), %xmm0
  movups 224(%rsp), %xmm1
  leave
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size aoti_debug_interposed_entry, .-aoti_debug_interposed_entry
)");

// void aoti_debug_interposed_invoke(function, frame, words): `words`, even, of the stack are handed on.
asm(R"(
  .text
  .p2align 4
  .globl aoti_debug_interposed_invoke
  .hidden aoti_debug_interposed_invoke
  .type aoti_debug_interposed_invoke, @function
aoti_debug_interposed_invoke:
  .cfi_startproc
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  pushq %rbx
  .cfi_offset %rbx, -24
  subq $8, %rsp
  movq %rsi, %rbx
  movq %rdi, %r11
  movq %rdx, %rcx
  shlq $3, %rdx
  subq %rdx, %rsp
  movq 184(%rbx), %rsi
  movq %rsp, %rdi
  cld
  rep movsq
  movups 48(%rbx), %xmm0
  movups 64(%rbx), %xmm1
  movups 80(%rbx), %xmm2
  movups 96(%rbx), %xmm3
  movups 112(%rbx), %xmm4
  movups 128(%rbx), %xmm5
  movups 144(%rbx), %xmm6
  movups 160(%rbx), %xmm7
  movq 0(%rbx), %rdi
  movq 8(%rbx), %rsi
  movq 16(%rbx), %rdx
  movq 24(%rbx), %rcx
  movq 32(%rbx), %r8
  movq 40(%rbx), %r9
  movq 176(%rbx), %rax
  call *%r11
  movq %rax, 176(%rbx)
  movq %rdx, 200(%rbx)
  movups %xmm0, 208(%rbx)
  movups %xmm1, 224(%rbx)
  leaq -8(%rbp), %rsp
  popq %rbx
  popq %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size aoti_debug_interposed_invoke, .-aoti_debug_interposed_invoke
)");
